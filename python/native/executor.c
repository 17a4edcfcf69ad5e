/* Jobs of thread pools: submitted here, begun and ended there. */
#include "native.h"

typedef struct Job {
  PyObject_HEAD Cell* cell; /* current where it was submitted */
  PyObject* before;         /* what the worker's ContextVar held; between begin and end */
  Origin origin;
  Outer outer;
  uint64_t step, span, start_ns;
  int running;
} Job;

static PyTypeObject* job_type;
static PyObject *job_name, *partial_type;
static PyObject *stock_item_init, *stock_item_run;
static _Thread_local uint64_t ended_step; /* the thread's last job, while it stands for what the thread does after it */

static int SetVar(PyObject* value) {
  PyObject* token = PyContextVar_Set(current_var, value ? value : Py_None);
  Py_XDECREF(token);
  return token ? 0 : -1;
}

static void JobDealloc(PyObject* self) {
  Job* job = (Job*)self;
  PyTypeObject* type = Py_TYPE(self);
  Py_XDECREF(job->cell);
  Py_XDECREF(job->before);
  type->tp_free(self);
  Py_DECREF(type);
}

static PyObject* Submit(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  Job* job = (Job*)job_type->tp_alloc(job_type, 0);
  if (!job) return NULL;
  Cell* cell = RunningCell();
  Py_XINCREF(cell);
  job->cell = cell;
  OriginInit(&job->origin, tailspan_state(), TAILSPAN_EXECUTOR);
  return (PyObject*)job;
}

static Job* CheckJob(PyObject* object, int running) {
  if (Py_TYPE(object) == job_type && ((Job*)object)->running == running) return (Job*)object;
  PyErr_SetString(PyExc_TypeError, running ? "a Job that has begun was expected" : "a Job was expected, not begun");
  return NULL;
}

/* The worker's context takes the submitter's cell for the time of the job: work given away is work for that span. */
static PyObject* Begin(PyObject* module, PyObject* object) {
  (void)module;
  Job* job = CheckJob(object, 0);
  if (!job) return NULL;
  struct TailspanThreadState* state = tailspan_state();
  PyObject* before = NULL;
  if (PyContextVar_Get(current_var, NULL, &before) < 0) return NULL;
  Cell* live = LiveCell(job->cell);
  if (SetVar((PyObject*)live)) {
    Py_XDECREF(before);
    return NULL;
  }
  Py_XSETREF(job->before, before);
  if (state->step == ended_step) state->step = state->plain_step;
  SaveOuter(state, &job->outer);
  job->start_ns = tailspan_now_ns();
  PublishQuiet(state, live, job->start_ns);
  job->span = state->span;
  job->step = tailspan_next_step(state);
  job->running = 1;
  state->step = job->step;
  state->task = 0;
  state->slot->start_ns = job->start_ns;
  state->slot->span = job->span;
  state->slot->task = 0;
  state->slot->step = job->step;
  Py_RETURN_NONE;
}

static int EndJob(Job* job) {
  struct TailspanThreadState* state = tailspan_state();
  job->running = 0;
  int bad = SetVar(job->before);
  Py_CLEAR(job->before);
  uint64_t end_ns = tailspan_now_ns();
  RestoreOuter(state, &job->outer, end_ns);
  EmitStep(state, &job->origin, job->step, job->span, job->start_ns, end_ns, &job->outer);
  return bad;
}

/* For pools that report the result when the work has returned already (anyio): until the thread begins another job, the
 * job is who makes others ready. */
static PyObject* End(PyObject* module, PyObject* object) {
  (void)module;
  Job* job = CheckJob(object, 1);
  if (!job) return NULL;
  int bad = EndJob(job);
  struct TailspanThreadState* state = tailspan_state();
  if (job->outer.forks == tailspan_forks && state->step == state->plain_step) state->step = ended_step = job->step;
  if (bad) return NULL;
  Py_RETURN_NONE;
}

static PyObject* ItemInit(PyObject* self, PyObject* args, PyObject* kwargs) {
  Py_ssize_t count = PyTuple_GET_SIZE(args);
  PyObject* full = PyTuple_New(count + 1);
  if (!full) return NULL;
  PyTuple_SET_ITEM(full, 0, Py_NewRef(self));
  for (Py_ssize_t i = 0; i < count; ++i) PyTuple_SET_ITEM(full, i + 1, Py_NewRef(PyTuple_GET_ITEM(args, i)));
  PyObject* done = PyObject_Call(stock_item_init, full, kwargs);
  Py_DECREF(full);
  PyObject* job = done ? Submit(NULL, NULL) : NULL;
  Py_XDECREF(done);
  if (!job) return NULL;
  int bad = PyObject_SetAttr(self, job_name, job);
  Py_DECREF(job);
  if (bad) return NULL;
  Py_RETURN_NONE;
}

/* Work that brings its own context (to_thread, LangChain: `context.run`, or a partial of it) works for the span that is
 * current there. */
static void TakeCellOfWork(Job* job, PyObject* item) {
  PyObject* function = PyObject_GetAttrString(item, "fn");
  if (!function) { /* from 3.14 on: (function, arguments, keywords) */
    PyErr_Clear();
    PyObject* task = PyObject_GetAttrString(item, "task");
    if (task && PyTuple_Check(task) && PyTuple_GET_SIZE(task) == 3) function = Py_NewRef(PyTuple_GET_ITEM(task, 0));
    Py_XDECREF(task);
  }
  /* Only of a real partial: a proxy of the application's would take the attribute for a call of its own. */
  int is_partial = function && PyType_IsSubtype(Py_TYPE(function), (PyTypeObject*)partial_type);
  PyObject* inner = is_partial ? PyObject_GetAttrString(function, "func") : NULL;
  PyErr_Clear();
  PyObject* run = inner ? inner : function;
  PyObject* context = run && PyCFunction_Check(run) ? PyCFunction_GET_SELF(run) : NULL;
  if (context && PyContext_CheckExact(context)) {
    PyObject* value = PyObject_GetItem(context, current_var);
    if (!value) PyErr_Clear();
    if (value && Py_TYPE(value) != cell_type) Py_CLEAR(value);
    Py_XSETREF(job->cell, (Cell*)value);
  }
  Py_XDECREF(inner);
  Py_XDECREF(function);
}

/* Stock run keeps the job's exception in its future; what it raises itself is passed on. An item without a job (a
 * subclass with an __init__ of its own) or whose job cannot begin (run twice) runs all the same. */
static PyObject* ItemRun(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  PyObject* job = PyObject_GetAttr(self, job_name);
  if (job && Py_TYPE(job) == job_type && !((Job*)job)->running) TakeCellOfWork((Job*)job, self);
  PyObject* begun = job ? Begin(NULL, job) : NULL;
  if (!begun) {
    PyErr_Clear();
    Py_CLEAR(job);
  }
  Py_XDECREF(begun);
  PyObject* stack[4] = {self};
  if (count > 3) count = 3;
  for (Py_ssize_t i = 0; i < count; ++i) stack[i + 1] = args[i];
  PyObject* result = PyObject_Vectorcall(stock_item_run, stack, (size_t)count + 1, NULL);
  if (!job) return result;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  int bad = EndJob((Job*)job);
  if (bad && result) {
    Py_CLEAR(result);
  } else if (!result) {
    PyErr_Restore(type, value, traceback);
  }
  Py_DECREF(job);
  return result;
}

static PyMethodDef item_init = {"__init__", (PyCFunction)(void (*)(void))ItemInit, METH_VARARGS | METH_KEYWORDS, NULL};
static PyMethodDef item_run = {"run", (PyCFunction)(void (*)(void))ItemRun, METH_FASTCALL, NULL};

/* A subclass of the stock work item, made as a class statement would make it. */
PyObject* WorkItemType(PyObject* thread_module) {
  PyObject* stock = PyObject_GetAttrString(thread_module, "_WorkItem");
  PyObject* home = stock ? PyObject_GetAttrString(stock, "__module__") : NULL;
  if (home && PyUnicode_Check(home) && PyUnicode_CompareWithASCIIString(home, "concurrent.futures.thread")) {
    PyErr_Format(PyExc_RuntimeError, "hooked by %U", home); /* it submits and begins the jobs itself */
    Py_CLEAR(stock);
  }
  Py_XDECREF(home);
  PyObject* type = stock ? PyObject_CallFunction((PyObject*)&PyType_Type, "s(O){}", "_WorkItem", stock) : NULL;
  if (stock && !stock_item_init) {
    stock_item_init = PyObject_GetAttrString(stock, "__init__");
    stock_item_run = PyObject_GetAttrString(stock, "run");
  }
  Py_XDECREF(stock);
  if (!type || !stock_item_init || !stock_item_run) {
    Py_XDECREF(type);
    return NULL;
  }
  PyObject* init = PyDescr_NewMethod((PyTypeObject*)type, &item_init);
  PyObject* run = PyDescr_NewMethod((PyTypeObject*)type, &item_run);
  if (!init || !run || PyObject_SetAttrString(type, "__init__", init) || PyObject_SetAttrString(type, "run", run)) {
    Py_CLEAR(type);
  }
  Py_XDECREF(init);
  Py_XDECREF(run);
  return type;
}

static PyType_Slot job_slots[] = {{Py_tp_dealloc, JobDealloc},
                                  {Py_tp_doc, "One piece of work given to another thread; made by submit()."},
                                  {0, NULL}};
static PyType_Spec job_spec = {"tailspan._context.Job", sizeof(Job), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, job_slots};
static PyObject* SkipSite(PyObject* module, PyObject* function) {
  (void)module;
  if (CallSiteSkip(function)) return NULL;
  Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"skip_site", SkipSite, METH_O, "A function that only passes work on: who made it ready is its caller."},
    {"submit", Submit, METH_NOARGS, "A Job for the running context's span, submitted now."},
    {"begin", Begin, METH_O, "This thread begins the job: its span becomes current here."},
    {"end", End, METH_O, "This thread ends the job; what was current before is again."},
    {NULL, NULL, 0, NULL}};

int ExecutorInit(PyObject* module) {
  job_type = (PyTypeObject*)PyType_FromSpec(&job_spec);
  job_name = PyUnicode_InternFromString("_tailspan_job");
  PyObject* functools = PyImport_ImportModule("functools");
  partial_type = functools ? PyObject_GetAttrString(functools, "partial") : NULL;
  Py_XDECREF(functools);
  if (partial_type && !PyType_Check(partial_type)) {
    PyErr_SetString(PyExc_TypeError, "functools.partial is no type");
    return -1;
  }
  if (!job_type || !job_name || !partial_type || PyModule_AddFunctions(module, functions)) return -1;
  return PyModule_AddObjectRef(module, "Job", (PyObject*)job_type);
}
