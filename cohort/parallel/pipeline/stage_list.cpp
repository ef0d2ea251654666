#include "cohort/parallel/pipeline/stage_list.h"

#include <c10/util/Exception.h>

#include <string>

namespace cohort::pipeline {

StageListImpl::StageListImpl(const std::vector<std::shared_ptr<torch::nn::Module>>& stages)
    : torch::nn::Module("StageList") {
  TORCH_CHECK_VALUE(!stages.empty(), "[cohort] StageList: a rank has at least one stage, but got none");
  for (const auto& stage : stages) {
    TORCH_CHECK_VALUE(stage, "[cohort] StageList: a stage is null");
    register_module("stage" + std::to_string(children().size()), stage);
  }
}

}  // namespace cohort::pipeline
