/* Puts our types in the place of asyncio's and the thread pool's, and takes them out again. */
#include "native.h"

enum { kPatchesMax = 24 };

typedef struct Patch {
  PyObject *owner, *stock; /* strong */
  const char* name;
} Patch;

static Patch patches[kPatchesMax];
static int patch_count;
static PyObject* report; /* what install_loop answered; null while not installed */
static PyObject* gc_hook;
static uint64_t gc_start_ns;

/* Steals `replacement`, which may be null (an exception is set then). */
static int Replace(PyObject* owner, const char* name, PyObject* replacement) {
  if (!replacement || patch_count == kPatchesMax) return Py_XDECREF(replacement), -1;
  /* A class attribute as it stands in the class, not bound. */
  PyObject* stock = PyObject_GetAttrString(owner, name);
  int bad = !stock || PyObject_SetAttrString(owner, name, replacement);
  Py_DECREF(replacement);
  if (bad) return Py_XDECREF(stock), -1;
  patches[patch_count++] = (Patch){Py_NewRef(owner), stock, name};
  return 0;
}

static int Undo(int from) {
  int bad = 0;
  while (patch_count > from) {
    Patch* patch = &patches[--patch_count];
    bad |= PyObject_SetAttrString(patch->owner, patch->name, patch->stock);
    Py_CLEAR(patch->owner);
    Py_CLEAR(patch->stock);
  }
  return bad;
}

static int Note(PyObject* answer, const char* key, PyObject* value) {
  int bad = !value || PyDict_SetItemString(answer, key, value);
  Py_XDECREF(value);
  return bad;
}

/* True, or the text of the current exception, which is taken: one part that fails must not take the rest with it. */
static PyObject* Outcome(int bad) {
  if (!bad) return Py_NewRef(Py_True);
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyObject* text = value ? PyObject_Str(value) : PyUnicode_FromString("failed");
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  return text;
}

static int SkipNames(PyObject* owner, const char* const* names) {
  for (; *names; ++names) {
    PyObject* function = PyObject_GetAttrString(owner, *names);
    if (!function) {
      PyErr_Clear(); /* another version's name */
      continue;
    }
    int bad = CallSiteSkip(function);
    Py_DECREF(function);
    if (bad) return -1;
  }
  return 0;
}

/* Functions that stand between whoever made something ready and its handle or job. */
static int SkipSites(PyObject* asyncio, PyObject* loop_type, PyObject* thread_module) {
  static int done;
  static const char* const of_loop[] = {"call_soon", "_call_soon",  "call_soon_threadsafe", "call_later",
                                        "call_at",   "create_task", "run_in_executor",      NULL};
  static const char* const of_selector_loop[] = {"add_reader", "_add_reader", "add_writer", "_add_writer", NULL};
  static const char* const of_asyncio[] = {"create_task", "to_thread", "ensure_future", NULL};
  static const char* const of_tasks[] = {"_ensure_future", NULL};
  static const char* const of_pool[] = {"submit", NULL};
  if (done) return 0;
  done = 1;
  PyObject* tasks = PyObject_GetAttrString(asyncio, "tasks");
  PyObject* pool = PyObject_GetAttrString(thread_module, "ThreadPoolExecutor");
  PyObject* selector_events = PyImport_ImportModule("asyncio.selector_events");
  PyObject* selector_loop = selector_events ? PyObject_GetAttrString(selector_events, "BaseSelectorEventLoop") : NULL;
  int bad = !tasks || !pool || !selector_loop || SkipNames(selector_loop, of_selector_loop) ||
            SkipNames(loop_type, of_loop) || SkipNames(asyncio, of_asyncio) || SkipNames(tasks, of_tasks) ||
            SkipNames(pool, of_pool);
  Py_XDECREF(tasks);
  Py_XDECREF(pool);
  Py_XDECREF(selector_events);
  Py_XDECREF(selector_loop);
  return bad ? -1 : 0;
}

/* Stock comparisons of timers look up `TimerHandle` in their module, where ours stands from now on: timers that were
 * pending before would no longer compare. They get the same functions with their own class under that name. */
static int PatchComparisons(PyObject* events, PyObject* stock_timer) {
  static const char* const names[] = {"__lt__", "__le__", "__gt__", "__ge__", "__eq__", NULL};
  PyObject* globals = PyDict_Copy(PyModule_GetDict(events));
  int bad = !globals || PyDict_SetItemString(globals, "TimerHandle", stock_timer);
  for (int i = 0; !bad && names[i]; ++i) {
    PyObject* stock = PyObject_GetAttrString(stock_timer, names[i]);
    PyObject* code = stock ? PyFunction_GetCode(stock) : NULL;
    bad = !code || Replace(stock_timer, names[i], PyFunction_New(code, globals));
    Py_XDECREF(stock);
  }
  Py_XDECREF(globals);
  return bad ? -1 : 0;
}

static int InstallHandles(PyObject* asyncio, PyObject* events) {
  PyObject* stock_timer = PyObject_GetAttrString(events, "TimerHandle");
  int from = patch_count;
  int bad = !stock_timer || HandleSetup(events) || PatchComparisons(events, stock_timer) ||
            Replace(events, "Handle", Py_NewRef((PyObject*)handle_type)) ||
            Replace(events, "TimerHandle", Py_NewRef((PyObject*)timer_type)) ||
            Replace(asyncio, "Handle", Py_NewRef((PyObject*)handle_type)) ||
            Replace(asyncio, "TimerHandle", Py_NewRef((PyObject*)timer_type)) ||
            (thread_safe_type && Replace(events, "_ThreadSafeHandle", Py_NewRef((PyObject*)thread_safe_type)));
  Py_XDECREF(stock_timer);
  if (bad) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    Undo(from);
    PyErr_Restore(type, value, traceback);
  }
  return bad ? -1 : 0;
}

static int InstallSelect(void) {
  PyObject* selectors = PyImport_ImportModule("selectors");
  PyObject* type = selectors ? PyObject_GetAttrString(selectors, "EpollSelector") : NULL;
  if (type && !stock_register) stock_register = PyObject_GetAttrString(type, "register");
  if (type && !stock_modify) stock_modify = PyObject_GetAttrString(type, "modify");
  int bad = !type || !stock_register || !stock_modify ||
            Replace(type, "select", PyDescr_NewMethod((PyTypeObject*)type, &select_method)) ||
            Replace(type, "register", PyDescr_NewMethod((PyTypeObject*)type, &register_method)) ||
            Replace(type, "modify", PyDescr_NewMethod((PyTypeObject*)type, &modify_method));
  Py_XDECREF(type);
  Py_XDECREF(selectors);
  return bad ? -1 : 0;
}

static int InstallCreateTask(PyObject* loop_type, PyMethodDef* method) {
  if (!stock_create_task && !(stock_create_task = PyObject_GetAttrString(loop_type, "create_task"))) return -1;
  return Replace(loop_type, "create_task", PyDescr_NewMethod((PyTypeObject*)loop_type, method));
}

static PyObject* GcEvent(PyObject* module, PyObject* const* args, Py_ssize_t count) {
  (void)module;
  if (count != 2 || !PyUnicode_Check(args[0])) Py_RETURN_NONE;
  uint64_t now_ns = tailspan_now_ns();
  if (!PyUnicode_CompareWithASCIIString(args[0], "start")) {
    gc_start_ns = now_ns; /* one collection at a time: the GIL is held throughout, or callbacks nest in order */
    Py_RETURN_NONE;
  }
  PyObject* generation = PyDict_Check(args[1]) ? PyDict_GetItemString(args[1], "generation") : NULL;
  struct TailspanThreadState* state = tailspan_state();
  struct TailspanRingRecord* record = tailspan_begin(state, TAILSPAN_GC, 0);
  record->ready_ns = record->start_ns = gc_start_ns;
  record->end_ns = now_ns;
  record->step = state->step;
  record->span = record->outer_span = state->span;
  record->waker_step = record->waker_span = 0;
  record->task = state->task;
  record->fd = generation && PyLong_Check(generation) ? (int32_t)PyLong_AsLong(generation) : -1;
  tailspan_finish(state, record);
  Py_RETURN_NONE;
}
static PyMethodDef gc_method = {"gc_event", (PyCFunction)(void (*)(void))GcEvent, METH_FASTCALL, NULL};

static PyObject* GcCallbacks(void) {
  PyObject* gc = PyImport_ImportModule("gc");
  PyObject* callbacks = gc ? PyObject_GetAttrString(gc, "callbacks") : NULL;
  Py_XDECREF(gc);
  return callbacks;
}

static int InstallGc(void) {
  PyObject* callbacks = GcCallbacks();
  if (!gc_hook) gc_hook = PyCFunction_New(&gc_method, NULL);
  int bad = !callbacks || !gc_hook || PyList_Append(callbacks, gc_hook);
  Py_XDECREF(callbacks);
  return bad ? -1 : 0;
}

static void RemoveGc(void) {
  PyObject* callbacks = GcCallbacks();
  PyObject* gone = callbacks && gc_hook ? PyObject_CallMethod(callbacks, "remove", "O", gc_hook) : NULL;
  if (!gone) PyErr_Clear();
  Py_XDECREF(gone);
  Py_XDECREF(callbacks);
}

/* Why the ring cannot have loop steps here; null when it can. */
static const char* NoRingReason(void) {
  const char* wanted = getenv("TAILSPAN_LOOP");
  if (wanted && !strcmp(wanted, "context")) return "off by TAILSPAN_LOOP=context";
  if (!TAILSPAN_KNOWN_PYTHON) return "this version of Python is not verified: only the context is published";
  return tailspan_context_problem();
}

static PyObject* InstallLoop(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  if (report) return PyDict_Copy(report);
  PyObject* answer = PyDict_New();
  PyObject* asyncio = PyImport_ImportModule("asyncio");
  PyObject* events = PyImport_ImportModule("asyncio.events");
  PyObject* base = PyImport_ImportModule("asyncio.base_events");
  PyObject* thread_module = PyImport_ImportModule("concurrent.futures.thread");
  PyObject* loop_type = base ? PyObject_GetAttrString(base, "BaseEventLoop") : NULL;
  int bad =
      !answer || !asyncio || !events || !thread_module || !loop_type || SkipSites(asyncio, loop_type, thread_module);
  if (!bad) {
    const char* reason = NoRingReason();
    int no_handles = reason != NULL;
    if (reason) {
      bad = Note(answer, "handles", PyUnicode_FromString(reason));
    } else {
      no_handles = InstallHandles(asyncio, events);
      bad = Note(answer, "handles", Outcome(no_handles)) || Note(answer, "select", Outcome(InstallSelect()));
    }
    PyMethodDef* create = no_handles ? &wrap_task_method : PY_VERSION_HEX >= 0x030C0000 ? &create_task_method : NULL;
    if (!bad && create) bad = Note(answer, "tasks", Outcome(InstallCreateTask(loop_type, create)));
    if (!bad) {
      bad = Note(answer, "executor", Outcome(Replace(thread_module, "_WorkItem", WorkItemType(thread_module)))) ||
            Note(answer, "gc", Outcome(InstallGc())) || Note(answer, "ring", PyBool_FromLong(!no_handles)) ||
            Note(answer, "context", Py_NewRef(Py_True));
    }
  }
  Py_XDECREF(asyncio);
  Py_XDECREF(events);
  Py_XDECREF(base);
  Py_XDECREF(thread_module);
  Py_XDECREF(loop_type);
  if (bad) {
    Py_XDECREF(answer);
    return NULL;
  }
  report = answer;
  return PyDict_Copy(report);
}

static PyObject* UninstallLoop(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  if (report) {
    Py_CLEAR(report);
    RemoveGc();
    if (Undo(0)) return NULL;
  }
  return PyDict_New();
}

PyMethodDef install_methods[] = {
    {"install_loop", InstallLoop, METH_NOARGS, "Hooks asyncio and thread pools; a dict of what is on, or why not."},
    {"uninstall_loop", UninstallLoop, METH_NOARGS, "Takes the hooks out; handles that exist go on recording."},
    {NULL, NULL, 0, NULL}};
