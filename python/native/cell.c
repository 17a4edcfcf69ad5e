/* Cells, the ContextVar that holds them, and what a thread publishes of them. */
#include "native.h"

PyTypeObject* cell_type;
PyObject* current_var;

static uint64_t last_serial;
static const struct TailspanThreadRecord no_span;

/* Cuts ended cells out of the chain on the way, so that a chain holds live cells only and does not grow with time. */
Cell* LiveCell(Cell* cell) {
  while (cell && cell->ended) {
    Cell* parent = cell->parent;
    if (parent && parent->ended) {
      Cell* above = parent->parent;
      Py_XINCREF(above);
      cell->parent = above;
      Py_DECREF(parent);
    } else {
      cell = parent;
    }
  }
  return cell;
}

/* Borrowed: the running context holds the value. */
static Cell* RawCell(void) {
  PyObject* value = NULL;
  if (PyContextVar_Get(current_var, NULL, &value) < 0) {
    PyErr_Clear();
    return NULL;
  }
  if (!value) return NULL;
  Py_DECREF(value);
  return Py_TYPE(value) == cell_type ? (Cell*)value : NULL;
}

Cell* RunningCell(void) { return LiveCell(RawCell()); }

static const Cell* Published(const Cell* cell) {
  while (cell && (!cell->filled || cell->ended)) cell = cell->parent;
  return cell;
}

void PublishQuiet(struct TailspanThreadState* state, const Cell* cell, uint64_t now_ns) {
  cell = Published(cell);
  uint64_t serial = cell ? cell->serial : 0;
  if (state->serial != serial) tailspan_write_record(state, cell ? &cell->ids : &no_span, serial, now_ns);
}

void PublishCell(const Cell* cell, uint8_t kind) {
  struct TailspanThreadState* state = tailspan_state();
  cell = Published(cell);
  if (state->serial == (cell ? cell->serial : 0)) return;
  uint64_t now_ns = tailspan_now_ns(), previous = state->span;
  PublishQuiet(state, cell, now_ns);
  tailspan_emit_span(state, kind, previous, now_ns);
}

void SaveOuter(struct TailspanThreadState* state, Outer* outer) {
  outer->serial = state->serial;
  outer->span = state->span;
  outer->step = state->step;
  outer->task = state->task;
  outer->forks = tailspan_forks;
  if (state->serial) outer->record = state->record;
}

/* After a fork inside the step the child has new ids: only the span itself is carried over. */
void RestoreOuter(struct TailspanThreadState* state, const Outer* outer, uint64_t now_ns) {
  if (state->serial != outer->serial) {
    tailspan_write_record(state, outer->serial ? &outer->record : &no_span, outer->serial, now_ns);
  }
  int same = outer->forks == tailspan_forks;
  state->step = same ? outer->step : state->plain_step;
  state->task = same ? outer->task : 0;
  state->slot->step = state->step;
  state->slot->span = state->span;
}

static int CopyId(uint8_t* to, PyObject* from, Py_ssize_t size, const char* what) {
  if (!PyBytes_Check(from) || PyBytes_GET_SIZE(from) != size) {
    PyErr_Format(PyExc_ValueError, "%s must be %zd bytes", what, size);
    return -1;
  }
  memcpy(to, PyBytes_AS_STRING(from), (size_t)size);
  return 0;
}

static int Fill(Cell* cell, PyObject* trace_id, PyObject* span_id, PyObject* uuid) {
  if (uuid != Py_None && CopyId(cell->ids.uuid, uuid, 16, "uuid")) return -1;
  if (trace_id == Py_None && span_id == Py_None) return 0;
  if (CopyId(cell->ids.trace_id, trace_id, 16, "trace_id") || CopyId(cell->ids.span_id, span_id, 8, "span_id"))
    return -1;
  cell->ids.flags = 1;
  cell->filled = 1;
  return 0;
}

static PyObject* CellNew(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"trace_id", "span_id", "uuid", "parent", NULL};
  PyObject *trace_id, *span_id, *uuid = Py_None, *parent = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|OO:Cell", names, &trace_id, &span_id, &uuid, &parent)) return NULL;
  if (parent != Py_None && Py_TYPE(parent) != cell_type) {
    PyErr_SetString(PyExc_TypeError, "parent must be a Cell or None");
    return NULL;
  }
  Cell* cell = (Cell*)type->tp_alloc(type, 0);
  if (!cell) return NULL;
  cell->serial = ++last_serial;
  if (Fill(cell, trace_id, span_id, uuid)) {
    Py_DECREF(cell);
    return NULL;
  }
  Cell* live = parent == Py_None ? NULL : LiveCell((Cell*)parent);
  if (live) LiveCell(live->parent); /* cuts there too: chains of overlapping spans would grow for ever */
  Py_XINCREF(live);
  cell->parent = live;
  return (PyObject*)cell;
}

/* A loop, not a recursion: chains may be deep. */
static void CellDealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Cell* parent = ((Cell*)self)->parent;
  Py_XDECREF(((Cell*)self)->base);
  type->tp_free(self);
  Py_DECREF(type);
  while (parent && Py_REFCNT(parent) == 1) {
    Cell* above = parent->parent;
    parent->parent = NULL;
    Py_DECREF(parent);
    parent = above;
  }
  Py_XDECREF(parent);
}

/* The ids become known. A thread that works in this cell publishes them at once, others from their next step on. */
static PyObject* CellFill(PyObject* self, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"trace_id", "span_id", "uuid", NULL};
  PyObject *trace_id, *span_id, *uuid = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|O:fill", names, &trace_id, &span_id, &uuid)) return NULL;
  Cell* cell = (Cell*)self;
  if (cell->filled) {
    PyErr_SetString(PyExc_ValueError, "the cell has ids already");
    return NULL;
  }
  if (Fill(cell, trace_id, span_id, uuid)) return NULL;
  Cell* running = RunningCell();
  if (Published(running) == cell) PublishCell(running, TAILSPAN_ENTER);
  Py_RETURN_NONE;
}

static PyObject* CellEnd(PyObject* self, PyObject* unused) {
  (void)unused;
  ((Cell*)self)->ended = 1;
  Py_RETURN_NONE;
}

static PyObject* CellEnded(PyObject* self, void* unused) {
  (void)unused;
  return PyBool_FromLong(((Cell*)self)->ended);
}

static PyObject* CellParent(PyObject* self, void* unused) {
  (void)unused;
  PyObject* parent = (PyObject*)((Cell*)self)->parent;
  return Py_NewRef(parent ? parent : Py_None);
}

static PyObject* CellFilled(PyObject* self, void* unused) {
  (void)unused;
  return PyBool_FromLong(((Cell*)self)->filled);
}

static PyObject* CellGetBase(PyObject* self, void* unused) {
  (void)unused;
  PyObject* base = ((Cell*)self)->base;
  return base ? Py_NewRef(base) : PyLong_FromLong(0);
}

static int CellSetBase(PyObject* self, PyObject* value, void* unused) {
  (void)unused;
  Py_XINCREF(value);
  Py_XSETREF(((Cell*)self)->base, value);
  return 0;
}

static PyObject* CellBytes(PyObject* self, void* which) {
  const struct TailspanThreadRecord* ids = &((Cell*)self)->ids;
  if (which != (void*)2 && !((Cell*)self)->filled) Py_RETURN_NONE;
  if (which == (void*)0) return PyBytes_FromStringAndSize((const char*)ids->trace_id, 16);
  if (which == (void*)1) return PyBytes_FromStringAndSize((const char*)ids->span_id, 8);
  if (!memcmp(ids->uuid, no_span.uuid, 16)) Py_RETURN_NONE;
  return PyBytes_FromStringAndSize((const char*)ids->uuid, 16);
}

static int SetVar(PyObject* value) {
  PyObject* token = PyContextVar_Set(current_var, value);
  if (!token) return -1;
  Py_DECREF(token);
  return 0;
}

static Cell* CheckCell(PyObject* object) {
  if (Py_TYPE(object) == cell_type) return (Cell*)object;
  PyErr_SetString(PyExc_TypeError, "a Cell was expected");
  return NULL;
}

static PyObject* Enter(PyObject* module, PyObject* object) {
  (void)module;
  Cell* cell = NULL;
  if (object != Py_None && !(cell = CheckCell(object))) return NULL;
  if (SetVar(object)) return NULL;
  PublishCell(LiveCell(cell), cell ? TAILSPAN_ENTER : TAILSPAN_RESTORE);
  Py_RETURN_NONE;
}

/* Spans may end in another context or thread than they began in: only the running context is touched, and only where
 * the cell or what lies below it is current. Descendants that were left open are left with it. */
static PyObject* Leave(PyObject* module, PyObject* object) {
  (void)module;
  Cell* cell = CheckCell(object);
  if (!cell) return NULL;
  Cell* held = RawCell();
  while (held && held != cell) held = held->parent;
  cell->ended = 1;
  Cell* live = LiveCell(held ? held : RawCell());
  Py_XINCREF(live); /* setting the variable may free the chain that `live` hangs on */
  int bad = held && SetVar(live ? (PyObject*)live : Py_None);
  if (!bad) PublishCell(live, TAILSPAN_LEAVE);
  Py_XDECREF(live);
  if (bad) return NULL;
  Py_RETURN_NONE;
}

static PyObject* Refresh(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  PublishCell(RunningCell(), TAILSPAN_RESTORE);
  Py_RETURN_NONE;
}

static PyObject* Publish(PyObject* module, PyObject* object) {
  (void)module;
  Cell* cell = NULL;
  if (object != Py_None && !(cell = CheckCell(object))) return NULL;
  PublishCell(LiveCell(cell), TAILSPAN_RESTORE);
  Py_RETURN_NONE;
}

static PyObject* CurrentCell(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  PyObject* cell = (PyObject*)RunningCell();
  if (!cell) cell = Py_None;
  Py_INCREF(cell);
  return cell;
}

/* The variable alone: for code that prepares another context than the one whose span is published. */
static PyObject* SetContext(PyObject* module, PyObject* object) {
  (void)module;
  if (object != Py_None && !CheckCell(object)) return NULL;
  if (SetVar(object)) return NULL;
  Py_RETURN_NONE;
}

static PyObject* PublishedId(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  if (!tailspan_thread.span) Py_RETURN_NONE;
  return PyBytes_FromStringAndSize((const char*)tailspan_thread.record.span_id, 8);
}

static PyMethodDef cell_methods[] = {{"end", CellEnd, METH_NOARGS, "Marks the span ended, wherever it is current."},
                                     {"fill", (PyCFunction)(void (*)(void))CellFill, METH_VARARGS | METH_KEYWORDS,
                                      "fill(trace_id, span_id, uuid=None): gives the ids to a cell without."},
                                     {NULL, NULL, 0, NULL}};
static PyGetSetDef cell_fields[] = {
    {"filled", CellFilled, NULL, "False while the ids are not known.", NULL},
    {"base", CellGetBase, CellSetBase, "Free for the hooks; 0 at first.", NULL},
    {"ended", CellEnded, NULL, "True once end() or leave() was called.", NULL},
    {"parent", CellParent, NULL, "The cell above, or None; ancestors that ended are left out.", NULL},
    {"trace_id", CellBytes, NULL, "16 bytes.", (void*)0},
    {"span_id", CellBytes, NULL, "8 bytes.", (void*)1},
    {"uuid", CellBytes, NULL, "16 bytes, or None.", (void*)2},
    {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot cell_slots[] = {{Py_tp_new, CellNew},
                                   {Py_tp_dealloc, CellDealloc},
                                   {Py_tp_methods, cell_methods},
                                   {Py_tp_getset, cell_fields},
                                   {Py_tp_doc, "Cell(trace_id, span_id, uuid=None, parent=None): one span."},
                                   {0, NULL}};
static PyType_Spec cell_spec = {"tailspan._context.Cell", sizeof(Cell), 0, Py_TPFLAGS_DEFAULT, cell_slots};

static PyMethodDef functions[] = {
    {"enter", Enter, METH_O, "Makes a cell (or None) current in the running context and publishes it."},
    {"leave", Leave, METH_O, "Ends the cell; its nearest live ancestor becomes current."},
    {"refresh", Refresh, METH_NOARGS, "Publishes what the running context says."},
    {"publish", Publish, METH_O, "Publishes a cell or None, without touching the ContextVar."},
    {"current_cell", CurrentCell, METH_NOARGS, "The nearest live cell of the running context, or None."},
    {"set_context", SetContext, METH_O, "Sets the ContextVar to a cell or None, without publishing."},
    {"published", PublishedId, METH_NOARGS, "The span id this thread publishes, or None."},
    {NULL, NULL, 0, NULL}};

int CellInit(PyObject* module) {
  cell_type = (PyTypeObject*)PyType_FromSpec(&cell_spec);
  current_var = PyContextVar_New("tailspan_current", NULL);
  if (!cell_type || !current_var || PyModule_AddFunctions(module, functions)) return -1;
  if (PyModule_AddObjectRef(module, "Cell", (PyObject*)cell_type)) return -1;
  return PyModule_AddObjectRef(module, "current", current_var);
}
