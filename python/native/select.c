/* EpollSelector.select with an epoll_wait of its own, so that the moment it returned is known apart from the moment
 * the GIL was had again; and BaseEventLoop.create_task for eager tasks. */
#include <errno.h>
#include <math.h>
#include <sys/epoll.h>

#include "native.h"

enum { kStackEvents = 64 };

static PyObject *selector_name, *key_map_name, *fileno_name, *factory_name;

int SelectInit(void) {
  selector_name = PyUnicode_InternFromString("_selector");
  key_map_name = PyUnicode_InternFromString("_fd_to_key");
  fileno_name = PyUnicode_InternFromString("fileno");
  factory_name = PyUnicode_InternFromString("_task_factory");
  return selector_name && key_map_name && fileno_name && factory_name ? 0 : -1;
}

/* Milliseconds as EpollSelector has them: rounded up, -1 for ever; -2 with an exception. */
static int TimeoutMs(PyObject* timeout) {
  if (timeout == Py_None) return -1;
  double seconds = PyFloat_AsDouble(timeout);
  if (seconds == -1 && PyErr_Occurred()) return -2;
  if (!(seconds > 0)) return 0;
  double ms = ceil(seconds * 1e3);
  if (ms <= INT_MAX) return (int)ms;
  PyErr_SetString(PyExc_OverflowError, "timeout is too large");
  return -2;
}

static int EpollFd(PyObject* selector) {
  PyObject* epoll = PyObject_GetAttr(selector, selector_name);
  PyObject* number = epoll ? PyObject_CallMethodNoArgs(epoll, fileno_name) : NULL;
  Py_XDECREF(epoll);
  if (!number) return -1;
  int fd = (int)PyLong_AsLong(number);
  Py_DECREF(number);
  return fd;
}

/* Waits without the GIL, going on after signals as PEP 475 has it. The events' count, or -1 with an exception. */
static int Wait(int fd, struct epoll_event* events, int max, int timeout_ms, uint64_t* return_ns) {
  uint64_t deadline_ns = timeout_ms > 0 ? tailspan_now_ns() + (uint64_t)timeout_ms * 1000000u : 0;
  for (;;) {
    int count, os_errno;
    Py_BEGIN_ALLOW_THREADS;
    count = epoll_wait(fd, events, max, timeout_ms);
    os_errno = errno;
    *return_ns = tailspan_now_ns();
    Py_END_ALLOW_THREADS;
    if (count >= 0) return count;
    if (os_errno != EINTR) {
      errno = os_errno;
      PyErr_SetFromErrno(PyExc_OSError);
      return -1;
    }
    if (PyErr_CheckSignals()) return -1;
    if (timeout_ms > 0) {
      uint64_t now_ns = tailspan_now_ns();
      if (now_ns >= deadline_ns) return 0;
      timeout_ms = (int)((deadline_ns - now_ns + 999999u) / 1000000u);
    }
  }
}

/* asyncio registers (reader handle, writer handle) as the key's data. */
static void MarkReady(PyObject* data, long ready, int fd, uint64_t return_ns) {
  if (!PyTuple_CheckExact(data) || PyTuple_GET_SIZE(data) != 2) return;
  for (int i = 0; i < 2; ++i) {
    Origin* origin = ready >> i & 1 ? HandleOrigin(PyTuple_GET_ITEM(data, i)) : NULL;
    if (!origin) continue;
    origin->kind = i ? TAILSPAN_IO_WRITE : TAILSPAN_IO_READ;
    origin->ready_ns = return_ns;
    origin->fd = fd;
    origin->flags = 0;
  }
}

static PyObject* ReadyList(PyObject* key_map, const struct epoll_event* events, int count, uint64_t return_ns) {
  PyObject* list = PyList_New(0);
  for (int i = 0; list && i < count; ++i) {
    int fd = events[i].data.fd;
    PyObject* number = PyLong_FromLong(fd);
    PyObject* key = number ? PyObject_GetItem(key_map, number) : NULL;
    Py_XDECREF(number);
    if (!key) { /* unregistered meanwhile, as the stock code has it */
      if (PyErr_ExceptionMatches(PyExc_KeyError)) {
        PyErr_Clear();
        continue;
      }
      Py_CLEAR(list);
      break;
    }
    PyObject* pair = NULL;
    if (PyTuple_Check(key) && PyTuple_GET_SIZE(key) >= 4) { /* SelectorKey(fileobj, fd, events, data) */
      long wanted = PyLong_AsLong(PyTuple_GET_ITEM(key, 2));
      long ready =
          ((events[i].events & ~(uint32_t)EPOLLIN ? 2 : 0) | (events[i].events & ~(uint32_t)EPOLLOUT ? 1 : 0)) & wanted;
      MarkReady(PyTuple_GET_ITEM(key, 3), ready, fd, return_ns);
      pair = Py_BuildValue("(Ol)", key, ready);
    } else {
      PyErr_SetString(PyExc_TypeError, "the selector's keys are not SelectorKey tuples");
    }
    Py_DECREF(key);
    if (!pair || PyList_Append(list, pair)) Py_CLEAR(list);
    Py_XDECREF(pair);
  }
  return list;
}

static PyObject* Select(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* kwnames) {
  PyObject* timeout = Py_None;
  if (count == 1 && !kwnames) {
    timeout = args[0];
  } else if (count == 0 && kwnames && PyTuple_GET_SIZE(kwnames) == 1 &&
             !PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, 0), "timeout")) {
    timeout = args[0];
  } else if (count || kwnames) {
    PyErr_SetString(PyExc_TypeError, "select() takes one argument: timeout");
    return NULL;
  }
  uint64_t enter_ns = tailspan_now_ns(), return_ns = enter_ns;
  int timeout_ms = TimeoutMs(timeout);
  PyObject* key_map = timeout_ms == -2 ? NULL : PyObject_GetAttr(self, key_map_name);
  int fd = key_map ? EpollFd(self) : -1;
  Py_ssize_t max = fd < 0 ? -1 : PyObject_Size(key_map);
  struct epoll_event few[kStackEvents], *events = few;
  if (max > kStackEvents) events = PyMem_New(struct epoll_event, (size_t)max);
  PyObject* list = NULL;
  int ready = -1;
  if (max >= 0 && events) ready = Wait(fd, events, max ? (int)max : 1, timeout_ms, &return_ns);
  if (max >= 0 && !events) PyErr_NoMemory();
  if (ready >= 0) {
    uint64_t resume_ns = tailspan_now_ns();
    list = ReadyList(key_map, events, ready, return_ns);
    struct TailspanThreadState* state = tailspan_state(); /* a signal's handler may have forked: not before the wait */
    state->poll_enter_ns = enter_ns;
    state->poll_return_ns = return_ns;
    struct TailspanRingRecord* record = tailspan_begin(state, TAILSPAN_POLL, 0);
    record->start_ns = enter_ns;
    record->ready_ns = return_ns;
    record->end_ns = resume_ns;
    record->step = state->step;
    record->span = record->outer_span = state->span;
    record->waker_step = record->waker_span = record->task = 0;
    record->fd = ready;
    tailspan_finish(state, record);
  }
  if (events != few) PyMem_Free(events);
  Py_XDECREF(key_map);
  return list;
}

PyMethodDef select_method = {"select", (PyCFunction)(void (*)(void))Select, METH_FASTCALL | METH_KEYWORDS, NULL};

PyObject* stock_create_task;
static PyObject* eager_code; /* of the function that asyncio.eager_task_factory is */

static int HasEagerFactory(PyObject* loop) {
  PyObject* factory = PyObject_GetAttr(loop, factory_name);
  if (!factory) return PyErr_Clear(), 0;
  int eager = 0;
  if (factory != Py_None && PyFunction_Check(factory)) {
    if (!eager_code) {
      PyObject* asyncio = PyImport_ImportModule("asyncio");
      PyObject* stock = asyncio ? PyObject_GetAttrString(asyncio, "eager_task_factory") : NULL;
      if (stock && PyFunction_Check(stock)) eager_code = Py_NewRef(PyFunction_GetCode(stock));
      Py_XDECREF(stock);
      Py_XDECREF(asyncio);
      PyErr_Clear();
    }
    eager = PyFunction_GetCode(factory) == eager_code;
  }
  Py_DECREF(factory);
  return eager;
}

/* self + args, as a call of the stock function. */
static PyObject* CallStock(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* kwnames) {
  PyObject* stack[16];
  Py_ssize_t total = count + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  if (total > 15) {
    PyErr_SetString(PyExc_TypeError, "create_task() got too many arguments");
    return NULL;
  }
  stack[0] = self;
  for (Py_ssize_t i = 0; i < total; ++i) stack[i + 1] = args[i];
  return PyObject_Vectorcall(stock_create_task, stack, (size_t)count + 1, kwnames);
}

/* create_task(..., eager_start=True): 3.14 and later. */
static int AsksForEager(PyObject* const* args, Py_ssize_t count, PyObject* kwnames) {
  for (Py_ssize_t i = 0; kwnames && i < PyTuple_GET_SIZE(kwnames); ++i) {
    if (args[count + i] == Py_True && !PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i), "eager_start"))
      return 1;
  }
  return 0;
}

/* A factory that we do not know may begin the task at once too: at least its span must not stay with the creator. */
static PyObject* CreateOtherTask(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* kwnames) {
  Outer outer;
  SaveOuter(tailspan_state(), &outer);
  PyObject* task = CallStock(self, args, count, kwnames);
  struct TailspanThreadState* state = tailspan_state();
  if (state->serial == outer.serial || outer.forks != tailspan_forks) return task;
  uint64_t now_ns = tailspan_now_ns(), previous = state->span;
  RestoreOuter(state, &outer, now_ns);
  tailspan_emit_span(state, TAILSPAN_RESTORE, previous, now_ns);
  return task;
}

/* An eager task's first part runs inside create_task: a step of its own, nested in the creator's. */
static PyObject* CreateTask(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* kwnames) {
  if (!HasEagerFactory(self) && !AsksForEager(args, count, kwnames)) return CreateOtherTask(self, args, count, kwnames);
  struct TailspanThreadState* state = tailspan_state();
  Outer outer;
  Origin origin;
  SaveOuter(state, &outer);
  OriginInit(&origin, state, TAILSPAN_SOON);
  origin.flags = TAILSPAN_FIRST | TAILSPAN_EAGER;
  uint64_t step = tailspan_next_step(state), span = state->span;
  state->step = step;
  state->task = 0;
  PyObject* task = CallStock(self, args, count, kwnames);
  uint64_t end_ns = tailspan_now_ns();
  state = tailspan_state(); /* forked within: attaches the child's */
  origin.task = (uint64_t)(uintptr_t)task;
  RestoreOuter(state, &outer, end_ns);
  EmitStep(state, &origin, step, span, origin.ready_ns, end_ns, &outer);
  return task;
}

PyMethodDef create_task_method = {"create_task", (PyCFunction)(void (*)(void))CreateTask, METH_FASTCALL | METH_KEYWORDS,
                                  NULL};

static PyObject* WrapTask(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* kwnames) {
  Py_ssize_t total = count + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  if (count != 1 || total > 15 || !PyCoro_CheckExact(args[0])) return CallStock(self, args, count, kwnames);
  PyObject* stack[16];
  memcpy(stack, args, (size_t)total * sizeof *stack);
  PyObject* proxy = PyObject_CallOneArg((PyObject*)step_coroutine_type, args[0]);
  if (!proxy) return NULL;
  stack[0] = proxy;
  PyObject* task = CallStock(self, stack, count, kwnames);
  Py_DECREF(proxy);
  return task;
}

PyMethodDef wrap_task_method = {"create_task", (PyCFunction)(void (*)(void))WrapTask, METH_FASTCALL | METH_KEYWORDS,
                                NULL};
