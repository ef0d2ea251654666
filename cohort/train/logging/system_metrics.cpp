#include "cohort/train/logging/system_metrics.h"

#include "cohort/report/system/system_sampler.h"

namespace cohort::train {

struct SystemMetrics::State {
  report::SystemSampler sampler;
};

SystemMetrics::SystemMetrics(const SystemMetricsOptions& options)
    : state_(new State{report::SystemSampler({.pss = options.pss, .gpu = options.gpu})}) {}
SystemMetrics::~SystemMetrics() = default;

Metrics SystemMetrics::sample() { return state_->sampler.sample(); }
double SystemMetrics::cpu_share() { return state_->sampler.cpu_share(); }

}  // namespace cohort::train
