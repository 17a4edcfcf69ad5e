/* StepCoroutine(coro): stands in for a task's coroutine on loops that never call Handle._run (uvloop). Each send or
 * throw publishes the running context's span and puts back what was published before. Context only: no STEP record. */
#include "native.h"

#include <structmember.h>

typedef struct StepCoroutine {
  PyObject_HEAD PyObject* inner;
} StepCoroutine;

PyTypeObject* step_coroutine_type;
static PyObject *send_name, *throw_name, *close_name;

static void Leave(const Outer* outer) {
  struct TailspanThreadState* state = tailspan_state();
  if (state->serial == outer->serial) return;
  uint64_t now_ns = tailspan_now_ns(), previous = state->span;
  RestoreOuter(state, outer, now_ns);
  tailspan_emit_span(state, TAILSPAN_RESTORE, previous, now_ns);
}

static void Enter(Outer* outer) {
  SaveOuter(tailspan_state(), outer);
  PublishCell(RunningCell(), TAILSPAN_RESTORE);
}

static PySendResult AmSend(PyObject* self, PyObject* value, PyObject** result) {
  Outer outer;
  Enter(&outer);
  PySendResult how = PyIter_Send(((StepCoroutine*)self)->inner, value, result);
  Leave(&outer);
  return how;
}

/* The same in the form of a method: a return becomes StopIteration. */
static PyObject* Send(PyObject* self, PyObject* value) {
  PyObject* result = NULL;
  switch (AmSend(self, value, &result)) {
    case PYGEN_NEXT:
      return result;
    case PYGEN_RETURN:
      if (result == Py_None) {
        PyErr_SetNone(PyExc_StopIteration);
      } else {
        PyObject* stop = PyObject_CallOneArg(PyExc_StopIteration, result); /* a tuple must not be unpacked */
        if (stop) PyErr_SetObject(PyExc_StopIteration, stop);
        Py_XDECREF(stop);
      }
      Py_DECREF(result);
      return NULL;
    default:
      return NULL;
  }
}

static PyObject* Next(PyObject* self) { return Send(self, Py_None); }

static PyObject* CallInner(PyObject* self, PyObject* name, PyObject* args) {
  PyObject* method = PyObject_GetAttr(((StepCoroutine*)self)->inner, name);
  if (!method) return NULL;
  Outer outer;
  Enter(&outer);
  PyObject* result = args ? PyObject_CallObject(method, args) : PyObject_CallNoArgs(method);
  Leave(&outer);
  Py_DECREF(method);
  return result;
}

static PyObject* Throw(PyObject* self, PyObject* args) { return CallInner(self, throw_name, args); }
static PyObject* Close(PyObject* self, PyObject* unused) { return (void)unused, CallInner(self, close_name, NULL); }
static PyObject* Self(PyObject* self) { return Py_NewRef(self); }

/* cr_frame, cr_code, __name__ and whatever else a coroutine has. */
static PyObject* GetAttr(PyObject* self, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(self, name);
  if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  PyErr_Clear();
  return PyObject_GetAttr(((StepCoroutine*)self)->inner, name);
}

static PyObject* New(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject* inner;
  static char* names[] = {"coro", NULL};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:StepCoroutine", names, &inner)) return NULL;
  PyObject* send = PyObject_GetAttr(inner, send_name);
  if (!send) return NULL;
  Py_DECREF(send);
  StepCoroutine* self = (StepCoroutine*)type->tp_alloc(type, 0);
  if (self) self->inner = Py_NewRef(inner);
  return (PyObject*)self;
}

static int Traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(((StepCoroutine*)self)->inner);
  return 0;
}

static int Clear(PyObject* self) {
  Py_CLEAR(((StepCoroutine*)self)->inner);
  return 0;
}

static void Dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  PyObject_ClearWeakRefs(self);
  Clear(self);
  type->tp_free(self);
  Py_DECREF(type);
}

typedef struct {
  StepCoroutine base;
  PyObject* weak_list;
} WithWeakrefs;

static PyMethodDef methods[] = {{"send", Send, METH_O, NULL},
                                {"throw", Throw, METH_VARARGS, NULL},
                                {"close", Close, METH_NOARGS, NULL},
                                {NULL, NULL, 0, NULL}};
static PyMemberDef members[] = {{"__wrapped__", T_OBJECT, offsetof(StepCoroutine, inner), READONLY, NULL},
                                {"__weaklistoffset__", T_PYSSIZET, offsetof(WithWeakrefs, weak_list), READONLY, NULL},
                                {NULL, 0, 0, 0, NULL}};
static PyType_Slot slots[] = {{Py_tp_new, New},         {Py_tp_dealloc, Dealloc},  {Py_tp_traverse, Traverse},
                              {Py_tp_clear, Clear},     {Py_tp_getattro, GetAttr}, {Py_tp_iter, Self},
                              {Py_tp_iternext, Next},   {Py_am_await, Self},       {Py_am_send, AmSend},
                              {Py_tp_methods, methods}, {Py_tp_members, members},  {0, NULL}};
static PyType_Spec spec = {"tailspan._context.StepCoroutine", sizeof(WithWeakrefs), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};

int StepCoroutineInit(PyObject* module) {
  step_coroutine_type = (PyTypeObject*)PyType_FromSpec(&spec);
  send_name = PyUnicode_InternFromString("send");
  throw_name = PyUnicode_InternFromString("throw");
  close_name = PyUnicode_InternFromString("close");
  if (!step_coroutine_type || !send_name || !throw_name || !close_name) return -1;
  return PyModule_AddObjectRef(module, "StepCoroutine", (PyObject*)step_coroutine_type);
}
