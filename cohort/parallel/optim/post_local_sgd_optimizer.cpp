#include "cohort/parallel/optim/post_local_sgd_optimizer.h"

#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include "cohort/base/log/log.h"

namespace cohort::optim {

void PostLocalSGDOptimizer::step() {
  optimizer().step();
  averager().average_parameters(optimizer());
}

void PostLocalSGDOptimizer::zero_grad(bool set_to_none) { optimizer().zero_grad(set_to_none); }

void PostLocalSGDOptimizer::add_param_group(const torch::optim::OptimizerParamGroup& param_group) {
  optimizer().add_param_group(param_group);
}

void PostLocalSGDOptimizer::save(torch::serialize::OutputArchive& archive) const {
  optimizer().save(archive);
  archive.write("step", c10::IValue(averager().step));
}

void PostLocalSGDOptimizer::load(torch::serialize::InputArchive& archive) const {
  optimizer().load(archive);
  c10::IValue step;
  if (archive.try_read("step", step)) {
    averager().step = step.toInt();
    return;
  }
  base::log_warning("Loaded state dict does not contain a step counter for an averager. Setting step counter to 0.");
  averager().step = 0;
}

torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive,
                                            const PostLocalSGDOptimizer& optimizer) {
  optimizer.save(archive);
  return archive;
}

torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive,
                                           const PostLocalSGDOptimizer& optimizer) {
  optimizer.load(archive);
  return archive;
}

}  // namespace cohort::optim
