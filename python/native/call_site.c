/* Which Python function made something ready. The one file that reads the interpreter's internals, version by version.
 *
 * A frame is had without making a frame object. Names are cached by code object, so that a hit costs a few
 * nanoseconds; the cache holds a reference to each of its code objects. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030F0000 && !defined(Py_GIL_DISABLED)
#  define Py_BUILD_CORE
#  if PY_VERSION_HEX >= 0x030E0000
#    include <internal/pycore_interpframe_structs.h>
#    include <internal/pycore_stackref.h>
#  else
#    include <internal/pycore_frame.h>
#  endif
#  undef Py_BUILD_CORE
#elif PY_VERSION_HEX < 0x030B0000
#  include <frameobject.h>
#endif

#include "native.h"

#if !TAILSPAN_KNOWN_PYTHON
typedef void Frame;
static Frame* TopFrame(void) { return NULL; }
static Frame* NextFrame(Frame* frame) { return frame; }
static PyCodeObject* FrameCode(Frame* frame) { return (void)frame, NULL; }
#elif PY_VERSION_HEX < 0x030B0000
typedef PyFrameObject Frame;
static Frame* TopFrame(void) { return PyThreadState_Get()->frame; }
static Frame* NextFrame(Frame* frame) { return frame->f_back; }
static PyCodeObject* FrameCode(Frame* frame) { return frame->f_code; }
#else
typedef _PyInterpreterFrame Frame;
static Frame* NextFrame(Frame* frame) { return frame->previous; }
#  if PY_VERSION_HEX < 0x030D0000
static Frame* TopFrame(void) { return PyThreadState_Get()->cframe->current_frame; }
static PyObject* Executable(Frame* frame) { return (PyObject*)frame->f_code; }
#  else
static Frame* TopFrame(void) { return PyThreadState_Get()->current_frame; }
#    if PY_VERSION_HEX < 0x030E0000
static PyObject* Executable(Frame* frame) { return frame->f_executable; }
#    else
static PyObject* Executable(Frame* frame) { return PyStackRef_AsPyObjectBorrow(frame->f_executable); }
#    endif
#  endif
/* From 3.12 on there are frames for entries from C, which are no function's. */
static PyCodeObject* FrameCode(Frame* frame) {
#  if PY_VERSION_HEX >= 0x030E0000
  if (frame->owner >= FRAME_OWNED_BY_INTERPRETER) return NULL;
#  elif PY_VERSION_HEX >= 0x030C0000
  if (frame->owner == FRAME_OWNED_BY_CSTACK) return NULL;
#  endif
  PyObject* code = Executable(frame);
  return code && PyCode_Check(code) ? (PyCodeObject*)code : NULL;
}
#endif

enum { kCacheSize = 512, kDepthMax = 12, kSkipMax = 24, kSkip = 0xFFFF };

static struct {
  PyCodeObject* code; /* strong */
  uint16_t site;      /* kSkip: look further up */
} cache[kCacheSize];
static uint32_t cache_forks; /* a forked child has a new table of sites */
static PyCodeObject* skipped[kSkipMax];
static int skipped_count;

static unsigned CacheIndex(const PyCodeObject* code) {
  return (unsigned)(((uint32_t)((uintptr_t)code >> 5) * 2654435761u) >> 23) % kCacheSize;
}

static uint16_t NameSite(PyCodeObject* code) {
  for (int i = 0; i < skipped_count; ++i) {
    if (skipped[i] == code) return kSkip;
  }
#if PY_VERSION_HEX >= 0x030B0000
  PyObject* name = code->co_qualname;
#else
  PyObject* name = code->co_name;
#endif
  const char* function = PyUnicode_AsUTF8(name);
  const char* path = function ? PyUnicode_AsUTF8(code->co_filename) : NULL;
  if (!path) {
    PyErr_Clear();
    return 0;
  }
  const char* slash = strrchr(path, '/');
  char text[TAILSPAN_SITE_BYTES];
  PyOS_snprintf(text, sizeof text, "%s:%s", slash ? slash + 1 : path, function);
  return tailspan_site(text);
}

static uint16_t SiteOf(PyCodeObject* code) {
  unsigned at = CacheIndex(code);
  if (cache[at].code != code) {
    uint16_t site = NameSite(code);
    Py_INCREF(code);
    PyCodeObject* old = cache[at].code;
    cache[at].code = code;
    cache[at].site = site;
    Py_XDECREF(old);
  }
  return cache[at].site;
}

static void ForgetSites(void) {
  for (int i = 0; i < kCacheSize; ++i) Py_CLEAR(cache[i].code);
  cache_forks = tailspan_forks;
}

uint16_t CallSite(void) {
  if (cache_forks != tailspan_forks) ForgetSites();
  Frame* frame = TopFrame();
  for (int depth = 0; frame && depth < kDepthMax; ++depth, frame = NextFrame(frame)) {
    PyCodeObject* code = FrameCode(frame);
    if (!code) continue;
    uint16_t site = SiteOf(code);
    if (site != kSkip) return site;
  }
  return 0;
}

int CallSiteSkip(PyObject* function) {
  if (!PyFunction_Check(function) || skipped_count == kSkipMax) return 0;
  PyObject* code = PyFunction_GetCode(function); /* borrowed */
  Py_INCREF(code);
  skipped[skipped_count++] = (PyCodeObject*)code;
  ForgetSites();
  return 0;
}
