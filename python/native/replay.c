/* Failed callbacks go the stock way: a Replay stands for a moment in the place of the handle's context, so that stock
 * _run meets the exception that the callback has raised already. Frames, messages and the way to the loop's handler
 * are then the running version's own. */
#include "native.h"

typedef struct Replay {
  PyObject_HEAD PyObject *handle, **context_at, **args_at; /* the members to put back, and */
  PyObject *context, *args;                                /* with what */
  PyObject *type, *value, *traceback;
} Replay;

static PyTypeObject* replay_type;

static void Put(PyObject** member, PyObject* value) {
  Py_INCREF(value);
  Py_XSETREF(*member, value);
}

static PyObject* Run(PyObject* self, PyObject* args, PyObject* kwargs) {
  (void)args, (void)kwargs;
  Replay* replay = (Replay*)self;
  Put(replay->context_at, replay->context);
  Put(replay->args_at, replay->args);
  PyErr_Restore(replay->type, replay->value, replay->traceback);
  replay->type = replay->value = replay->traceback = NULL;
  return NULL;
}

static void Dealloc(PyObject* self) {
  Replay* replay = (Replay*)self;
  PyTypeObject* type = Py_TYPE(self);
  Py_XDECREF(replay->handle);
  Py_XDECREF(replay->context);
  Py_XDECREF(replay->args);
  Py_XDECREF(replay->type);
  Py_XDECREF(replay->value);
  Py_XDECREF(replay->traceback);
  type->tp_free(self);
  Py_DECREF(type);
}

static PyMethodDef methods[] = {{"run", (PyCFunction)(void (*)(void))Run, METH_VARARGS | METH_KEYWORDS, NULL},
                                {NULL, NULL, 0, NULL}};
static PyType_Slot slots[] = {{Py_tp_dealloc, Dealloc}, {Py_tp_methods, methods}, {0, NULL}};
static PyType_Spec spec = {"tailspan._context.Replay", sizeof(Replay), 0, Py_TPFLAGS_DEFAULT, slots};

PyObject* ReplayFailure(PyObject* handle, PyObject** context_at, PyObject** args_at, PyObject* context,
                        PyObject* stock_run) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  Replay* replay = (Replay*)replay_type->tp_alloc(replay_type, 0);
  if (!replay) {
    PyErr_Restore(type, value, traceback);
    return NULL;
  }
  replay->type = type;
  replay->value = value;
  replay->traceback = traceback;
  replay->handle = Py_NewRef(handle);
  replay->context_at = context_at;
  replay->args_at = args_at;
  replay->context = Py_NewRef(context);
  replay->args = Py_NewRef(*args_at ? *args_at : Py_None); /* None when the callback cancelled its own handle */
  if (!PyTuple_Check(replay->args)) {
    PyObject* none = PyTuple_New(0);
    Py_XSETREF(*args_at, none);
  }
  Put(context_at, (PyObject*)replay);
  PyObject* result = PyObject_CallOneArg(stock_run, handle);
  Py_DECREF(replay);
  return result;
}

int ReplaySetup(void) {
  if (!replay_type) replay_type = (PyTypeObject*)PyType_FromSpec(&spec);
  return replay_type ? 0 : -1;
}
