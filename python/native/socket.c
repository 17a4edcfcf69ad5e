/* Which socket a descriptor is. EpollSelector.register and modify tell the ring of each socket once: at its first
 * registration, and again at a later one if its peer was not known then. What happens on every step of a loop, its
 * select, knows nothing of it. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "native.h"

enum { kArgsMax = 8, kDescriptorsMax = 1 << 20 };

typedef struct Address {
  uint8_t bytes[16];
  uint16_t version, port; /* version 0: none */
} Address;

/* What the ring was last told of a descriptor. */
typedef struct Told {
  uint64_t inode;    /* 0 no socket */
  uint64_t since_ns; /* 0 nothing was told */
  Address remote;
  uint8_t pending; /* its peer may become another: not connected yet */
} Told;

PyObject *stock_register, *stock_modify;

static Told* told; /* by descriptor */
static int told_count;
static uint32_t told_forks; /* of which process the table speaks */

/* Null: out of memory, or a number too high for the table; such a descriptor is told at each registration. */
static Told* ToldOf(int fd) {
  if (told_forks != tailspan_forks) { /* a child's ring begins empty */
    told_forks = tailspan_forks;
    if (told) memset(told, 0, (size_t)told_count * sizeof *told);
  }
  if (fd < told_count) return &told[fd];
  if (fd >= kDescriptorsMax) return NULL;
  int count = told_count ? told_count : 64;
  while (count <= fd) count *= 2;
  Told* more = PyMem_RawRealloc(told, (size_t)count * sizeof *told);
  if (!more) return NULL;
  memset(more + told_count, 0, (size_t)(count - told_count) * sizeof *more);
  told = more;
  told_count = count;
  return &told[fd];
}

static Address AddressOf(const struct sockaddr_storage* from) {
  Address address = {0};
  if (from->ss_family == AF_INET) {
    const struct sockaddr_in* ip = (const struct sockaddr_in*)from;
    address.version = 4;
    memcpy(address.bytes, &ip->sin_addr, 4);
    address.port = ntohs(ip->sin_port);
  } else if (from->ss_family == AF_INET6) {
    const struct sockaddr_in6* ip = (const struct sockaddr_in6*)from;
    address.version = 6;
    memcpy(address.bytes, &ip->sin6_addr, 16);
    address.port = ntohs(ip->sin6_port);
  }
  return address;
}

/* Whom asyncio is connecting the socket to, from its callback's (host, port, ...): the kernel does not tell a peer
 * before there is a connection, and there may never be one. None for the wildcard, which is not the peer's address. */
static Address ConnectingTo(PyObject* data, uint16_t version) {
  Address address = {0}, none = {0};
  if (!data || !PyTuple_CheckExact(data) || PyTuple_GET_SIZE(data) != 2) return none;
  PyObject* target = HandleConnectsTo(PyTuple_GET_ITEM(data, 1));
  if (!target || !PyTuple_Check(target) || PyTuple_GET_SIZE(target) < 2) return none;
  PyObject *host = PyTuple_GET_ITEM(target, 0), *port = PyTuple_GET_ITEM(target, 1);
  if (!PyUnicode_Check(host) || !PyLong_Check(port)) return none;
  const char* text = PyUnicode_AsUTF8(host);
  long number = PyLong_AsLong(port);
  if (!text || number < 0 || number > 65535) return PyErr_Clear(), none;
  if (inet_pton(version == 4 ? AF_INET : AF_INET6, text, address.bytes) != 1) return none;
  if (!memcmp(address.bytes, none.bytes, sizeof none.bytes)) return none;
  address.version = version;
  address.port = (uint16_t)number;
  return address;
}

static void Emit(int fd, uint64_t inode, uint64_t since_ns, uint64_t now_ns, const Address* local,
                 const Address* remote) {
  struct TailspanThreadState* state = tailspan_state();
  struct TailspanRingRecord* begun = tailspan_begin(state, TAILSPAN_SOCKET, (uint8_t)local->version);
  struct TailspanRingSocket* record = (struct TailspanRingSocket*)begun;
  record->inode = inode;
  record->start_ns = since_ns;
  record->end_ns = now_ns;
  memcpy(record->local, local->bytes, sizeof record->local);
  memcpy(record->remote, remote->bytes, sizeof record->remote);
  record->remote_version = (uint8_t)remote->version;
  record->local_port = local->port;
  record->remote_port = remote->port;
  record->fd = fd;
  tailspan_finish(state, begun);
}

static int Listens(int fd) {
  int value = 0;
  socklen_t size = sizeof value;
  return !getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &size) && value;
}

static void Tell(int fd, PyObject* data) {
  struct stat status;
  if (fd < 0 || fstat(fd, &status)) return;
  uint64_t inode = S_ISSOCK(status.st_mode) ? status.st_ino : 0, now_ns = tailspan_now_ns();
  Told unseen = {0}, *known = ToldOf(fd);
  if (!known) known = &unseen;
  int same = known->since_ns && known->inode == inode;
  if (same && !known->pending) return;
  struct sockaddr_storage own = {0}, peer = {0};
  socklen_t own_size = sizeof own, peer_size = sizeof peer;
  Address local = {0}, remote = {0};
  int pending = 0;
  if (inode && !getsockname(fd, (struct sockaddr*)&own, &own_size)) local = AddressOf(&own);
  if (local.version && !getpeername(fd, (struct sockaddr*)&peer, &peer_size)) {
    remote = AddressOf(&peer);
  } else if (local.version && !Listens(fd)) {
    remote = ConnectingTo(data, local.version);
    pending = 1;
  }
  int had_peer = same && known->remote.version, changed = !same;
  if (remote.version && (!had_peer || memcmp(&remote, &known->remote, sizeof remote))) changed = 1;
  known->pending = (uint8_t)pending;
  if (!changed) return;
  if (!same || had_peer) known->since_ns = now_ns; /* else the same connection, of which now more is known */
  known->inode = inode;
  known->remote = remote;
  Emit(fd, inode, known->since_ns, now_ns, &local, &remote);
}

/* The stock method on self and args. */
static PyObject* CallStock(PyObject* stock, PyObject* self, PyObject* const* args, Py_ssize_t count,
                           PyObject* kwnames) {
  PyObject* stack[kArgsMax + 1];
  Py_ssize_t total = count + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  if (total > kArgsMax) {
    PyErr_SetString(PyExc_TypeError, "too many arguments");
    return NULL;
  }
  stack[0] = self;
  for (Py_ssize_t i = 0; i < total; ++i) stack[i + 1] = args[i];
  return PyObject_Vectorcall(stock, stack, (size_t)count + 1, kwnames);
}

/* The descriptor of a SelectorKey(fileobj, fd, events, data), -1 for anything else. */
static int KeyFd(PyObject* key) {
  if (!PyTuple_Check(key) || PyTuple_GET_SIZE(key) < 4 || !PyLong_Check(PyTuple_GET_ITEM(key, 1))) return -1;
  int fd = (int)PyLong_AsLong(PyTuple_GET_ITEM(key, 1));
  if (fd == -1 && PyErr_Occurred()) PyErr_Clear();
  return fd;
}

static PyObject* Register(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* kwnames) {
  PyObject* key = CallStock(stock_register, self, args, count, kwnames);
  int fd = key ? KeyFd(key) : -1;
  if (fd >= 0) Tell(fd, PyTuple_GET_ITEM(key, 3));
  return key;
}

static PyObject* Modify(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* kwnames) {
  PyObject* key = CallStock(stock_modify, self, args, count, kwnames);
  int fd = key ? KeyFd(key) : -1;
  Told* known = fd >= 0 ? ToldOf(fd) : NULL;
  if (known && known->pending) Tell(fd, PyTuple_GET_ITEM(key, 3));
  return key;
}

PyMethodDef register_method = {"register", (PyCFunction)(void (*)(void))Register, METH_FASTCALL | METH_KEYWORDS, NULL};
PyMethodDef modify_method = {"modify", (PyCFunction)(void (*)(void))Modify, METH_FASTCALL | METH_KEYWORDS, NULL};
