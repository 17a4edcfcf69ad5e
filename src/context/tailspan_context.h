/* libtailspan_context: says which span each thread works for, to a reader outside the process. C API.
 *
 * Loading the library publishes the process context (OTEP 4719) and opens the loop ring; nothing else is needed but
 * tailspan_context_set when a thread turns to a span and tailspan_context_clear when it has none any more. Both cost
 * a few tens of nanoseconds, allocate nothing and call the kernel only on a thread's first use. Each thread sets its
 * own context; there is no locking. After fork the child starts without a span and with a ring of its own.
 */
#ifndef TAILSPAN_CONTEXT_TAILSPAN_CONTEXT_H_
#define TAILSPAN_CONTEXT_TAILSPAN_CONTEXT_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TAILSPAN_EXPORT __attribute__((visibility("default")))

/* From now on this thread works for this span. Ids in wire order. uuid: the span's 16-byte id where it has one that
 * the 8 bytes do not hold (a LangSmith run), else null. */
TAILSPAN_EXPORT void tailspan_context_set(const uint8_t trace_id[16], const uint8_t span_id[8], const uint8_t* uuid);

/* From now on this thread works for no span. */
TAILSPAN_EXPORT void tailspan_context_clear(void);

/* The current span of this thread; returns 0 and leaves the arguments alone when there is none. */
TAILSPAN_EXPORT int tailspan_context_get(uint8_t trace_id[16], uint8_t span_id[8], uint8_t uuid[16]);

/* Names the language runtime in the process context, for example "cpython", "3.11.2". Both are copied, cut at 31. */
TAILSPAN_EXPORT void tailspan_context_set_runtime(const char* name, const char* version);

/* Why the loop ring or the process context is not there; null when both are. */
TAILSPAN_EXPORT const char* tailspan_context_problem(void);

#ifdef __cplusplus
}
#endif

#endif /* TAILSPAN_CONTEXT_TAILSPAN_CONTEXT_H_ */
