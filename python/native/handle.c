/* Handle, TimerHandle and (3.14) _ThreadSafeHandle: subclasses of asyncio's own, in C, that record each run.
 *
 * The base classes are Python classes with __slots__; their members are reached by the offsets that their descriptors
 * name, so nothing here depends on a version's layout. A subclass appends an Origin. Making one in C costs less than
 * the Python __init__ it replaces, which pays for the recording. In debug mode of the loop the stock __init__ runs.
 */
#include "native.h"

#include <structmember.h>

PyTypeObject* handle_type;
PyTypeObject* timer_type;
PyTypeObject* thread_safe_type;

static Py_ssize_t handle_origin_at, timer_origin_at, thread_safe_origin_at;
static struct {
  Py_ssize_t callback, args, cancelled, loop, source_traceback, repr, context, when, scheduled, lock;
} at;
static PyObject *stock_handle_init, *stock_timer_init, *stock_thread_safe_init, *stock_run, *make_lock;
static PyObject *debug_name, *get_debug_name, *acquire_name, *release_name, *run_name;
static PyObject* own_run; /* _run as it stands in our Handle, unless the application replaced it */

static PyObject** Member(PyObject* object, Py_ssize_t offset) { return (PyObject**)((char*)object + offset); }

static void SetMember(PyObject* object, Py_ssize_t offset, PyObject* value) {
  Py_INCREF(value);
  Py_XSETREF(*Member(object, offset), value);
}

static int IsThreadSafe(PyObject* handle) {
  return thread_safe_type && PyType_IsSubtype(Py_TYPE(handle), thread_safe_type);
}

Origin* HandleOrigin(PyObject* handle) {
  PyTypeObject* type = Py_TYPE(handle);
  if (type == handle_type) return (Origin*)((char*)handle + handle_origin_at);
  if (type == timer_type) return (Origin*)((char*)handle + timer_origin_at);
  if (timer_type && PyType_IsSubtype(type, timer_type)) return (Origin*)((char*)handle + timer_origin_at);
  if (IsThreadSafe(handle)) return (Origin*)((char*)handle + thread_safe_origin_at);
  if (handle_type && PyType_IsSubtype(type, handle_type)) return (Origin*)((char*)handle + handle_origin_at);
  return NULL;
}

PyObject* HandleConnectsTo(PyObject* handle) {
  if (!HandleOrigin(handle)) return NULL;
  PyObject *callback = *Member(handle, at.callback), *args = *Member(handle, at.args); /* (future, socket, address) */
  if (!callback || !PyMethod_Check(callback) || !args || !PyTuple_Check(args) || PyTuple_GET_SIZE(args) != 3)
    return NULL;
  PyObject* function = PyMethod_GET_FUNCTION(callback);
  if (!PyFunction_Check(function)) return NULL;
  PyObject* name = ((PyFunctionObject*)function)->func_name;
  return PyUnicode_CompareWithASCIIString(name, "_sock_connect_cb") ? NULL : PyTuple_GET_ITEM(args, 2);
}

void OriginInit(Origin* origin, struct TailspanThreadState* state, uint8_t kind) {
  origin->waker_step = state->step;
  origin->waker_span = state->span;
  origin->task = 0;
  origin->fd = -1;
  origin->forks = tailspan_forks;
  origin->site = CallSite();
  origin->kind = kind;
  origin->flags = 0;
  origin->ready_ns = tailspan_now_ns();
}

/* 1 debug, 0 not, -1 error. The attribute first: the method costs a call into Python. */
static int LoopDebugs(PyObject* loop) {
  PyObject* debug = PyObject_GetAttr(loop, debug_name);
  if (!debug) {
    PyErr_Clear();
    debug = PyObject_CallMethodNoArgs(loop, get_debug_name);
    if (!debug) return -1;
  }
  int result = debug == Py_False ? 0 : PyObject_IsTrue(debug);
  Py_DECREF(debug);
  return result;
}

static int StockInit(PyObject* self, PyObject* when, PyObject* callback, PyObject* args, PyObject* loop,
                     PyObject* context) {
  PyObject* stack[6] = {self, when, callback, args, loop, context ? context : Py_None};
  if (!when) {
    stack[1] = self;
    PyObject* init = IsThreadSafe(self) ? stock_thread_safe_init : stock_handle_init;
    PyObject* done = PyObject_Vectorcall(init, stack + 1, 5, NULL);
    Py_XDECREF(done);
    return done ? 0 : -1;
  }
  PyObject* done = PyObject_Vectorcall(stock_timer_init, stack, 6, NULL);
  Py_XDECREF(done);
  return done ? 0 : -1;
}

static int Fill(PyObject* self, PyObject* when, PyObject* callback, PyObject* args, PyObject* loop, PyObject* context) {
  int debug = LoopDebugs(loop);
  if (debug < 0) return -1;
  if (debug) {
    if (StockInit(self, when, callback, args, loop, context)) return -1;
  } else {
    PyObject* own = context && context != Py_None ? Py_NewRef(context) : PyContext_CopyCurrent();
    if (!own) return -1;
    Py_XSETREF(*Member(self, at.context), own);
    SetMember(self, at.loop, loop);
    SetMember(self, at.callback, callback);
    SetMember(self, at.args, args);
    SetMember(self, at.cancelled, Py_False);
    SetMember(self, at.repr, Py_None);
    SetMember(self, at.source_traceback, Py_None);
    if (IsThreadSafe(self)) {
      PyObject* lock = PyObject_CallNoArgs(make_lock);
      if (!lock) return -1;
      Py_XSETREF(*Member(self, at.lock), lock);
    }
    if (when) {
      SetMember(self, at.when, when);
      SetMember(self, at.scheduled, Py_False);
    }
  }
  struct TailspanThreadState* state = tailspan_state();
  Origin* origin = HandleOrigin(self);
  OriginInit(origin, state, when ? TAILSPAN_TIMER : TAILSPAN_SOON);
  int is_step;
  PyObject* task = TaskOf(callback, &is_step);
  origin->task = (uint64_t)(uintptr_t)task;
  /* A task schedules its own later steps while it runs; whoever else schedules a step has just made the task. */
  if (is_step && origin->task != state->task) origin->flags |= TAILSPAN_FIRST;
  return 0;
}

static int HandleInit(PyObject* self, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"callback", "args", "loop", "context", NULL};
  PyObject *callback, *callback_args, *loop, *context = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO|O:Handle", names, &callback, &callback_args, &loop, &context)) {
    return -1;
  }
  return Fill(self, NULL, callback, callback_args, loop, context);
}

static int TimerInit(PyObject* self, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"when", "callback", "args", "loop", "context", NULL};
  PyObject *when, *callback, *callback_args, *loop, *context = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOO|O:TimerHandle", names, &when, &callback, &callback_args, &loop,
                                   &context)) {
    return -1;
  }
  return Fill(self, when, callback, callback_args, loop, context);
}

/* Calling the type: the positional form that asyncio uses goes straight to Fill. */
static PyObject* MakeHandle(PyObject* type_object, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  PyTypeObject* type = (PyTypeObject*)type_object;
  Py_ssize_t timer = type == timer_type, count = PyVectorcall_NARGS(nargsf);
  if (kwnames || count < 3 + timer || count > 4 + timer) {
    PyObject* tuple = PyTuple_New(count);
    PyObject* dict = kwnames ? PyDict_New() : NULL;
    PyObject* made = NULL;
    for (Py_ssize_t i = 0; tuple && i < count; ++i) PyTuple_SET_ITEM(tuple, i, Py_NewRef(args[i]));
    int bad = !tuple || (kwnames && !dict);
    for (Py_ssize_t i = 0; !bad && kwnames && i < PyTuple_GET_SIZE(kwnames); ++i) {
      bad = PyDict_SetItem(dict, PyTuple_GET_ITEM(kwnames, i), args[count + i]) < 0;
    }
    if (!bad) made = PyType_Type.tp_call(type_object, tuple, dict);
    Py_XDECREF(tuple);
    Py_XDECREF(dict);
    return made;
  }
  PyObject* self = type->tp_alloc(type, 0);
  if (!self) return NULL;
  if (Fill(self, timer ? args[0] : NULL, args[timer], args[timer + 1], args[timer + 2],
           count > 3 + timer ? args[timer + 3] : NULL)) {
    Py_DECREF(self);
    return NULL;
  }
  return self;
}

/* When a handle became ready, as far as that is known only now. */
static uint64_t ReadyTime(PyObject* self, const Origin* origin, const struct TailspanThreadState* state,
                          uint64_t start_ns) {
  uint64_t ready_ns = origin->ready_ns;
  if (origin->kind == TAILSPAN_TIMER) {
    PyObject* when = *Member(self, at.when);
    double seconds = when && PyFloat_Check(when) ? PyFloat_AS_DOUBLE(when) : 0;
    uint64_t when_ns = seconds > 0 && seconds < 9e9 ? (uint64_t)(seconds * 1e9) : 0;
    /* Due while the loop was in its poll: the poll's return is what made it ready. */
    if (when_ns >= state->poll_enter_ns && when_ns < state->poll_return_ns) when_ns = state->poll_return_ns;
    if (when_ns > ready_ns) ready_ns = when_ns;
  } else if (origin->flags & TAILSPAN_READY_BOUND && state->poll_return_ns > ready_ns) {
    ready_ns = state->poll_return_ns;
  }
  return ready_ns < start_ns ? ready_ns : start_ns;
}

void EmitStep(struct TailspanThreadState* state, const Origin* origin, uint64_t step, uint64_t span, uint64_t start_ns,
              uint64_t end_ns, const Outer* outer) {
  if (outer->forks != tailspan_forks) return;  /* forked within: the parent writes this step */
  int known = origin->forks == tailspan_forks; /* made before a fork: its ids are the parent's */
  struct TailspanRingRecord* record = tailspan_begin(state, TAILSPAN_STEP, origin->kind);
  record->ready_ns = origin->ready_ns;
  record->start_ns = start_ns;
  record->end_ns = end_ns;
  record->step = step;
  record->span = span;
  record->waker_step = known ? origin->waker_step : 0;
  record->waker_span = known ? origin->waker_span : 0;
  record->task = origin->task;
  record->outer_span = outer->span;
  record->flags = origin->flags;
  record->site = known ? origin->site : 0;
  record->fd = origin->fd;
  tailspan_finish(state, record);
}

/* The thread turns to the step; returns the span it has in it. */
static uint64_t BeginStep(struct TailspanThreadState* state, const Origin* origin, uint64_t step, uint64_t start_ns) {
  state->step = step;
  state->task = origin->task;
  state->slot->start_ns = start_ns;
  state->slot->span = state->span;
  state->slot->task = origin->task;
  state->slot->step = step;
  return state->span;
}

static void PublishCellOf(PyObject* context, struct TailspanThreadState* state, uint64_t now_ns) {
  PyObject* value = PyObject_GetItem(context, current_var);
  if (!value) PyErr_Clear();
  PublishQuiet(state, value && Py_TYPE(value) == cell_type ? LiveCell((Cell*)value) : NULL, now_ns);
  Py_XDECREF(value);
}

static PyObject* HandleRun(PyObject* self, PyObject* unused) {
  (void)unused;
  struct TailspanThreadState* state = tailspan_state();
  if (!state->in_loop_slot) tailspan_enter_loop_slot(state);
  Origin* own = HandleOrigin(self);
  PyObject *context = *Member(self, at.context), *callback = *Member(self, at.callback), *args = *Member(self, at.args);
  if (!context || !callback || !args || !PyTuple_Check(args)) {
    return PyObject_CallOneArg(stock_run, self); /* cancelled, or never initialised: fails as it always did */
  }
  Py_INCREF(self);
  Py_INCREF(context);
  Py_INCREF(callback);
  Py_INCREF(args);
  Outer outer;
  SaveOuter(state, &outer);
  uint64_t step = tailspan_next_step(state), span = 0;
  uint64_t start_ns = tailspan_now_ns();
  Origin origin = *own; /* the callback may run this very handle again, or make it ready again */
  origin.ready_ns = ReadyTime(self, own, state, start_ns);
  own->flags = TAILSPAN_READY_BOUND; /* from the second run on; I/O sets its time with each poll */
  /* A handle of debug mode keeps the stack it was made on: there even the frame of stock _run must be real. */
  int debug = *Member(self, at.source_traceback) != Py_None && *Member(self, at.source_traceback) != NULL;
  PyObject* result = NULL;
  if (debug) {
    PublishCellOf(context, state, start_ns);
    span = BeginStep(state, &origin, step, start_ns);
    result = PyObject_CallOneArg(stock_run, self);
  } else if (PyContext_Enter(context) == 0) {
    PublishQuiet(state, RunningCell(), start_ns);
    span = BeginStep(state, &origin, step, start_ns);
    result = PyObject_Vectorcall(callback, ((PyTupleObject*)args)->ob_item, (size_t)PyTuple_GET_SIZE(args), NULL);
    if (PyContext_Exit(context) < 0) Py_CLEAR(result);
  }
  uint64_t end_ns = tailspan_now_ns();
  state = tailspan_state(); /* forked within: attaches the child's */
  RestoreOuter(state, &outer, end_ns);
  EmitStep(state, &origin, step, span, start_ns, end_ns, &outer);
  if (result) {
    Py_DECREF(result);
    result = Py_NewRef(Py_None);
  } else if (!debug) {
    result = ReplayFailure(self, Member(self, at.context), Member(self, at.args), context, stock_run);
  }
  Py_DECREF(args);
  Py_DECREF(callback);
  Py_DECREF(context);
  Py_DECREF(self);
  return result;
}

/* Timers inherit _run from Handle: one that an application (a monitor of slow callbacks) put there is theirs as well.
 */
static PyObject* InheritedRun(PyObject* self, PyObject* unused) {
  PyObject* run = PyDict_GetItemWithError(handle_type->tp_dict, run_name);
  if (run == own_run) return HandleRun(self, unused);
  if (PyErr_Occurred()) return NULL;
  run = PyObject_GetAttr((PyObject*)handle_type, run_name);
  PyObject* result = run ? PyObject_CallOneArg(run, self) : NULL;
  Py_XDECREF(run);
  return result;
}

/* The stock _run of 3.14: another thread may cancel the handle until it runs, and waits while it does. */
static PyObject* ThreadSafeRun(PyObject* self, PyObject* unused) {
  PyObject* lock = *Member(self, at.lock);
  if (!lock) return PyErr_SetString(PyExc_AttributeError, "_lock"), NULL;
  Py_INCREF(lock);
  PyObject* locked = PyObject_CallMethodNoArgs(lock, acquire_name);
  PyObject* result = NULL;
  if (locked) {
    result = *Member(self, at.cancelled) == Py_True ? Py_NewRef(Py_None) : InheritedRun(self, unused);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject* unlocked = PyObject_CallMethodNoArgs(lock, release_name);
    if (!unlocked) {
      Py_CLEAR(result);
      Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(traceback);
    } else if (!result) {
      PyErr_Restore(type, value, traceback);
    }
    Py_XDECREF(unlocked);
  }
  Py_XDECREF(locked);
  Py_DECREF(lock);
  return result;
}

static PyMethodDef handle_methods[] = {{"_run", HandleRun, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyMethodDef timer_methods[] = {{"_run", InheritedRun, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyMethodDef thread_safe_methods[] = {{"_run", ThreadSafeRun, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyType_Slot handle_slots[] = {{Py_tp_init, HandleInit}, {Py_tp_methods, handle_methods}, {0, NULL}};
static PyType_Slot timer_slots[] = {{Py_tp_init, TimerInit}, {Py_tp_methods, timer_methods}, {0, NULL}};
static PyType_Slot thread_safe_slots[] = {{Py_tp_init, HandleInit}, {Py_tp_methods, thread_safe_methods}, {0, NULL}};

/* The offset of a __slots__ member, or -1 with an exception. */
static Py_ssize_t MemberOffset(PyObject* type, const char* name) {
  PyObject* descriptor = PyObject_GetAttrString(type, name);
  if (!descriptor) return -1;
  Py_ssize_t offset = -1;
  if (Py_TYPE(descriptor) == &PyMemberDescr_Type) {
    offset = ((PyMemberDescrObject*)descriptor)->d_member->offset;
  } else {
    PyErr_Format(PyExc_RuntimeError, "asyncio's handles have no slot %s", name);
  }
  Py_DECREF(descriptor);
  return offset;
}

static int FindMembers(PyObject* handle, PyObject* timer) {
  return (at.callback = MemberOffset(handle, "_callback")) < 0 || (at.args = MemberOffset(handle, "_args")) < 0 ||
         (at.cancelled = MemberOffset(handle, "_cancelled")) < 0 || (at.loop = MemberOffset(handle, "_loop")) < 0 ||
         (at.source_traceback = MemberOffset(handle, "_source_traceback")) < 0 ||
         (at.repr = MemberOffset(handle, "_repr")) < 0 || (at.context = MemberOffset(handle, "_context")) < 0 ||
         (at.when = MemberOffset(timer, "_when")) < 0 || (at.scheduled = MemberOffset(timer, "_scheduled")) < 0;
}

static PyTypeObject* MakeType(const char* name, PyObject* base, Py_ssize_t origin_at, PyType_Slot* slots) {
  PyType_Spec spec = {name, (int)(origin_at + (Py_ssize_t)sizeof(Origin)), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                      slots};
  PyTypeObject* type = (PyTypeObject*)PyType_FromSpecWithBases(&spec, base);
  if (type) type->tp_vectorcall = MakeHandle;
  return type;
}

/* Our TimerHandle derives from the stock one, whose layout it extends, so it cannot derive from our Handle as well. It
 * stands in its order of resolution all the same, last, so that timers are handles to isinstance and issubclass. The
 * same for our _ThreadSafeHandle. */
static int MakeItAHandle(PyTypeObject* type, PyObject* stock, PyObject* handle) {
  PyObject* order = PyTuple_Pack(5, type, stock, handle, handle_type, &PyBaseObject_Type);
  if (!order) return -1;
  Py_SETREF(type->tp_mro, order);
  PyType_Modified(type);
  return 0;
}

static int ThreadSafeSetup(PyObject* events_module, PyObject* handle) {
  PyObject* stock = PyObject_GetAttrString(events_module, "_ThreadSafeHandle");
  if (!stock) return PyErr_Clear(), 0; /* before 3.14 */
  PyObject* threading = PyImport_ImportModule("threading");
  make_lock = threading ? PyObject_GetAttrString(threading, "RLock") : NULL;
  acquire_name = PyUnicode_InternFromString("acquire");
  release_name = PyUnicode_InternFromString("release");
  stock_thread_safe_init = PyObject_GetAttrString(stock, "__init__");
  thread_safe_origin_at = ((PyTypeObject*)stock)->tp_basicsize;
  int bad = !make_lock || !acquire_name || !release_name || !stock_thread_safe_init ||
            (at.lock = MemberOffset(stock, "_lock")) < 0 ||
            !(thread_safe_type =
                  MakeType("asyncio.events._ThreadSafeHandle", stock, thread_safe_origin_at, thread_safe_slots)) ||
            MakeItAHandle(thread_safe_type, stock, handle);
  Py_XDECREF(threading);
  Py_DECREF(stock);
  return bad ? -1 : 0;
}

int HandleSetup(PyObject* events_module) {
  if (handle_type && timer_type) return 0;
  PyObject* handle = PyObject_GetAttrString(events_module, "Handle");
  PyObject* timer = PyObject_GetAttrString(events_module, "TimerHandle");
  int bad = !handle || !timer || TaskSetup() || ReplaySetup() || FindMembers(handle, timer);
  if (!bad) {
    debug_name = PyUnicode_InternFromString("_debug");
    get_debug_name = PyUnicode_InternFromString("get_debug");
    run_name = PyUnicode_InternFromString("_run");
    stock_run = PyObject_GetAttrString(handle, "_run");
    stock_handle_init = PyObject_GetAttrString(handle, "__init__");
    stock_timer_init = PyObject_GetAttrString(timer, "__init__");
    handle_origin_at = ((PyTypeObject*)handle)->tp_basicsize;
    timer_origin_at = ((PyTypeObject*)timer)->tp_basicsize;
    handle_type = MakeType("asyncio.events.Handle", handle, handle_origin_at, handle_slots);
    timer_type = MakeType("asyncio.events.TimerHandle", timer, timer_origin_at, timer_slots);
    own_run = handle_type && run_name ? PyDict_GetItemWithError(handle_type->tp_dict, run_name) : NULL;
    Py_XINCREF(own_run);
    bad = !handle_type || !timer_type || !own_run || !stock_run || !stock_handle_init || !stock_timer_init ||
          MakeItAHandle(timer_type, timer, handle) || ThreadSafeSetup(events_module, handle);
  }
  Py_XDECREF(handle);
  Py_XDECREF(timer);
  return bad ? -1 : 0;
}
