// Words shared by the renderers.
#pragma once

#include <string>

#include "model/explanation.h"

namespace tailspan::report {

const char* VerdictName(model::Verdict verdict);

// The command that shows the finding's first exemplar; empty when there is none.
std::string ReproduceCommand(const model::Explanation& explanation, const model::Finding& finding);

// Cut to `width` columns of valid UTF-8, the last one an ellipsis when something was cut; padded when `pad`.
std::string FitText(const std::string& text, size_t width, bool pad);

// `first` and `text` in lines of at most `width` columns; all but the first are indented to where the text began.
std::string WrapText(const std::string& first, const std::string& text, size_t width);

}  // namespace tailspan::report
