/* tailspan._context: what its files share. All of it runs with the GIL held; per-thread state is the library's. */
#ifndef TAILSPAN_PYTHON_NATIVE_H_
#define TAILSPAN_PYTHON_NATIVE_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "context/thread_state.h"

/* Versions whose asyncio internals were checked by the tests. On others only the context works, not the ring. */
#if PY_VERSION_HEX >= 0x030A0000 && PY_VERSION_HEX < 0x030F0000 && !defined(Py_GIL_DISABLED)
#  define TAILSPAN_KNOWN_PYTHON 1
#else
#  define TAILSPAN_KNOWN_PYTHON 0
#endif

/* One span. Cells form chains by `parent` (only towards the root, so no cycles and no garbage collection). A cell may
 * start without ids and be filled later; until then it publishes as its nearest ancestor that has some. */
typedef struct Cell {
  PyObject_HEAD struct Cell*
      parent;      /* strong; ended ancestors are cut out as they are met, but never a live cell's own parent */
  PyObject* base;  /* the hooks' own, may be null */
  uint64_t serial; /* names the cell in the thread's state; never 0 */
  struct TailspanThreadRecord ids;
  uint8_t ended, filled;
} Cell;

extern PyTypeObject* cell_type;
extern PyObject* current_var; /* ContextVar holding a Cell or None */

int CellInit(PyObject* module);
Cell* LiveCell(Cell* cell); /* the nearest cell from here upwards that has not ended; borrowed, may be null */
Cell* RunningCell(void);    /* LiveCell of the running context; borrowed, alive while the context keeps it */

/* Makes `cell` (or none, or its nearest filled ancestor) what this thread publishes. Quiet: no record, for changes that
 * a STEP record stands for. */
void PublishQuiet(struct TailspanThreadState* state, const Cell* cell, uint64_t now_ns);
void PublishCell(const Cell* cell, uint8_t kind);

/* What the thread published before a step, to be put back after it. Copied: the cell may be gone by then. */
typedef struct Outer {
  uint64_t serial, span, step, task;
  uint32_t forks;
  struct TailspanThreadRecord record; /* only when serial is not 0 */
} Outer;
void SaveOuter(struct TailspanThreadState* state, Outer* outer);
void RestoreOuter(struct TailspanThreadState* state, const Outer* outer, uint64_t now_ns);

/* Who made it ready: the innermost Python function that is no part of asyncio's way to a handle. */
uint16_t CallSite(void);
int CallSiteSkip(PyObject* function); /* 0, or -1 with an exception; a non-function is ignored */
/* What is remembered of a handle from its making to its run. */
typedef struct Origin {
  uint64_t ready_ns, waker_step, waker_span, task;
  int32_t fd;
  uint32_t forks;
  uint16_t site;
  uint8_t kind, flags;
} Origin;
void OriginInit(Origin* origin, struct TailspanThreadState* state, uint8_t kind);
void EmitStep(struct TailspanThreadState* state, const Origin* origin, uint64_t step, uint64_t span, uint64_t start_ns,
              uint64_t end_ns, const Outer* outer);

extern PyTypeObject* handle_type;
extern PyTypeObject* timer_type;
extern PyTypeObject* thread_safe_type;    /* null before 3.14 */
int HandleSetup(PyObject* events_module); /* makes the types; 0 or -1 */
Origin* HandleOrigin(PyObject* handle);   /* null for a handle of another type */
/* The address that a handle of asyncio's sock_connect waits for; borrowed, null for any other object. */
PyObject* HandleConnectsTo(PyObject* handle);

/* The task whose step or wake-up this callback is, or null; borrowed. *is_step: a step the task did not wait for. */
PyObject* TaskOf(PyObject* callback, int* is_step);
int TaskSetup(void);

/* Takes the current exception of a handle's callback through `stock_run`. The two members are the handle's own. */
PyObject* ReplayFailure(PyObject* handle, PyObject** context_at, PyObject** args_at, PyObject* context,
                        PyObject* stock_run);
int ReplaySetup(void);

extern PyMethodDef select_method, register_method, modify_method;
extern PyObject *stock_register, *stock_modify;
extern PyMethodDef create_task_method; /* eager tasks: 3.12 and later */
extern PyMethodDef wrap_task_method;   /* without Handle: every task's coroutine becomes a StepCoroutine */
extern PyObject* stock_create_task;
int SelectInit(void);

int ExecutorInit(PyObject* module);
PyObject* WorkItemType(PyObject* thread_module); /* new reference */

int StepCoroutineInit(PyObject* module);
extern PyTypeObject* step_coroutine_type;

extern PyMethodDef install_methods[];

#endif /* TAILSPAN_PYTHON_NATIVE_H_ */
