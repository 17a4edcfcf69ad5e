/* Between the library's own files. */
#ifndef TAILSPAN_CONTEXT_INTERNAL_H_
#define TAILSPAN_CONTEXT_INTERNAL_H_

#include <stdint.h>

/* Opens this process's ring; false when it cannot be had, and then *problem says why. */
int tailspan_ring_open(const char** problem);
/* In a forked child: lets go of the parent's ring. Only calls that are safe after a fork. */
void tailspan_ring_drop(void);
int tailspan_ring_fd(void); /* -1: none */

/* Publishes or renews the mapping; false when it cannot be had. */
int tailspan_process_context_publish(int64_t tls_offset, int ring_fd, const char** problem);
/* In a forked child: the mapping did not come along. */
void tailspan_process_context_forget(void);

#endif /* TAILSPAN_CONTEXT_INTERNAL_H_ */
