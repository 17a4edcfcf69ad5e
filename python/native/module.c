/* tailspan._context: the module. */
#include "native.h"

static PyObject* Problem(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  const char* problem = tailspan_context_problem();
  if (!problem) Py_RETURN_NONE;
  return PyUnicode_FromString(problem);
}

static PyMethodDef methods[] = {
    {"problem", Problem, METH_NOARGS, "Why ring or process context are not there, or None."}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "tailspan._context",
    .m_doc = "Publishes each thread's current span and records what event loops and thread pools do.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__context(void) {
  static int loaded; /* our types and what they replaced are the process's, and die with the first interpreter */
  if (loaded) {
    PyErr_SetString(PyExc_ImportError,
                    "this process has loaded it already, for an interpreter that ended or by another name");
    return NULL;
  }
  loaded = 1;
  PyObject* module = PyModule_Create(&definition);
  if (!module) return NULL;
  char version[32] = {0}; /* of what runs, not of the headers we were built with */
  strncpy(version, Py_GetVersion(), sizeof version - 1);
  version[strcspn(version, " ")] = 0;
  tailspan_context_set_runtime("cpython", version);
  if (CellInit(module) || ExecutorInit(module) || StepCoroutineInit(module) || SelectInit() ||
      PyModule_AddFunctions(module, install_methods)) {
    Py_DECREF(module);
    return NULL;
  }
  return module;
}
