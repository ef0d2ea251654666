#include "cohort/extras/data/datasets/download.h"

#include "cohort/data/datasets/or_throw.h"
#include "cohort/extras/files/sets/fetch.h"

namespace cohort::data {

void download(const std::string& name, const std::string& root) { detail::or_throw(files::fetch(name, root)); }

}  // namespace cohort::data
