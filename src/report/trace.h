// One request's ledger: as JSON (schema tailspan.trace/1) and as text with its span tree and a lane of causes a span.
#pragma once

#include <string>

#include "model/ledger.h"
#include "report/text.h"

namespace tailspan::report {

std::string RenderTraceJson(const model::TraceLedger& ledger);
std::string RenderTraceText(const model::TraceLedger& ledger, const TextStyle& style = {});

}  // namespace tailspan::report
