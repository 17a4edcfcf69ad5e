/* Which task a handle's callback belongs to. */
#include "native.h"

static PyTypeObject* wrapper_type; /* asyncio's C wrapper of a task's step, once seen */
static Py_ssize_t wrapper_task_at;
static PyTypeObject *c_task_type, *py_task_type;

static PyObject** At(PyObject* object, Py_ssize_t offset) { return (PyObject**)((char*)object + offset); }

static int IsTask(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  return type == c_task_type || (c_task_type && PyType_IsSubtype(type, c_task_type)) ||
         (py_task_type && PyType_IsSubtype(type, py_task_type));
}

static int FindTask(PyObject* object, void* found) {
  if (!IsTask(object)) return 0;
  *(PyObject**)found = object;
  return 1;
}

/* Finds out where the wrapper keeps its task by letting it be traversed, instead of trusting one version's struct. */
static void LearnWrapper(PyObject* callback) {
  PyTypeObject* type = Py_TYPE(callback);
  const char* dot = strrchr(type->tp_name, '.');
  if (wrapper_type || strcmp(dot ? dot + 1 : type->tp_name, "TaskStepMethWrapper") || !type->tp_traverse) return;
  PyObject* task = NULL;
  type->tp_traverse(callback, FindTask, &task);
  if (!task) return;
  for (Py_ssize_t offset = sizeof(PyObject); offset + (Py_ssize_t)sizeof(void*) <= type->tp_basicsize;
       offset += sizeof(void*)) {
    if (*At(callback, offset) != task) continue;
    Py_INCREF(type);
    wrapper_type = type;
    wrapper_task_at = offset;
    return;
  }
}

PyObject* TaskOf(PyObject* callback, int* is_step) {
  PyObject* owner = NULL;
  *is_step = 0;
  if (Py_TYPE(callback) == wrapper_type) {
    *is_step = 1;
    return *At(callback, wrapper_task_at);
  }
  if (PyCFunction_CheckExact(callback)) {
    owner = PyCFunction_GET_SELF(callback);
  } else if (PyMethod_Check(callback)) {
    owner = PyMethod_GET_SELF(callback);
    if (owner && IsTask(owner)) {
      PyObject* function = PyMethod_GET_FUNCTION(callback);
      PyObject* name = PyFunction_Check(function) ? ((PyFunctionObject*)function)->func_name : NULL;
      *is_step = name && PyUnicode_CompareWithASCIIString(name, "__step") == 0;
    }
  } else if (!wrapper_type) {
    LearnWrapper(callback);
    if (Py_TYPE(callback) == wrapper_type) return TaskOf(callback, is_step);
  }
  return owner && IsTask(owner) ? owner : NULL;
}

static PyTypeObject* TypeFrom(PyObject* module, const char* name) {
  PyObject* type = module ? PyObject_GetAttrString(module, name) : NULL;
  if (!type) PyErr_Clear();
  if (type && !PyType_Check(type)) Py_CLEAR(type);
  return (PyTypeObject*)type;
}

int TaskSetup(void) {
  PyObject* tasks = PyImport_ImportModule("asyncio.tasks");
  PyObject* accelerator = PyImport_ImportModule("_asyncio");
  if (!accelerator) PyErr_Clear();
  c_task_type = TypeFrom(accelerator, "Task");
  py_task_type = TypeFrom(tasks, "_PyTask");
  Py_XDECREF(accelerator);
  Py_XDECREF(tasks);
  return tasks ? 0 : -1;
}
