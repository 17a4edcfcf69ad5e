// Words shared by the renderers.
#pragma once

#include <string>

#include "model/explanation.h"

namespace tailspan::report {

const char* VerdictName(model::Verdict verdict);

// The command that shows the finding's first exemplar, to be pasted into a shell; empty when there is none.
std::string ReproduceCommand(const model::Explanation& explanation, const model::Finding& finding);

// Cleaned and cut to `width` columns, the last one an ellipsis when something was cut; padded when `pad`.
std::string FitText(const std::string& text, size_t width, bool pad);

// `first` and the cleaned `text` in lines of at most `width` columns where words are shorter; all but the first are
// indented to where the text began.
std::string WrapText(const std::string& first, const std::string& text, size_t width);

}  // namespace tailspan::report
