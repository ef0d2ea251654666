#include "cohort/extras/data/datasets/download.h"

#include "cohort/comm/error/throw_error.h"
#include "cohort/extras/files/sets/fetch.h"

namespace cohort::data {

void download(const std::string& name, const std::string& root) { comm::or_throw(files::fetch(name, root)); }

}  // namespace cohort::data
