// How text is laid out for where standard output goes.
#pragma once

#include "report/text.h"

namespace tailspan::cli {

// Colour on a terminal only, and not under NO_COLOR (any value but the empty one) or TERM=dumb; the terminal's width as
// far as the text can use it, 100 columns elsewhere.
report::TextStyle StyleOfStdout();

}  // namespace tailspan::cli
