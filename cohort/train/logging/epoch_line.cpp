#include "cohort/train/logging/epoch_line.h"

#include <utility>

#include "cohort/base/system/deadline.h"
#include "cohort/report/progress/epoch_text.h"
#include "cohort/report/system/system_sampler.h"
#include "cohort/report/terminal/live_line.h"
#include "cohort/train/logging/torch_warnings.h"

namespace cohort::train {
namespace {

constexpr std::chrono::milliseconds kEpochTerminalInterval{200};
constexpr std::chrono::milliseconds kEpochLogInterval{5000};

}  // namespace

struct EpochLine::State {
  explicit State(EpochLineOptions given)
      : options(std::move(given)), line(options.fd, static_cast<report::LineKind>(options.style)) {
    shows = options.is_enabled && (line.is_terminal() || !options.only_on_terminal);
    if (!options.min_interval) options.min_interval = line.is_terminal() ? kEpochTerminalInterval : kEpochLogInterval;
  }

  std::chrono::steady_clock::time_point now() const {
    return options.now ? options.now() : std::chrono::steady_clock::now();
  }

  report::EpochFigures figures_of(const EpochState& state) const {
    report::EpochFigures figures = epoch;
    figures.step = state.step;
    figures.seconds = state.seconds.value_or(std::chrono::duration<double>(now() - began_at).count());
    figures.num_samples = state.num_samples;
    figures.metrics = state.metrics;
    figures.data_wait_share = state.data_wait_share;
    figures.communication_share = state.communication_share;
    figures.memory_bytes = state.memory_bytes ? state.memory_bytes : report::resident_bytes();
    return figures;
  }

  EpochLineOptions options;
  detail::TorchWarnings warnings;
  report::LiveLine line;
  report::EpochFigures epoch;
  std::chrono::steady_clock::time_point began_at = {}, shown_at = {}, paused_at = {};
  bool shows = false, was_shown = false;
};

static_assert(static_cast<int>(LineStyle::kTerminal) == static_cast<int>(report::LineKind::kTerminal) &&
              static_cast<int>(LineStyle::kLog) == static_cast<int>(report::LineKind::kLog));

EpochLine::EpochLine(EpochLineOptions options) : state_(std::make_unique<State>(std::move(options))) {}
EpochLine::~EpochLine() = default;

void EpochLine::begin(std::optional<int64_t> epoch, std::optional<int64_t> num_steps, int64_t first_step,
                      const std::string& label) {
  state_->line.end();
  state_->epoch = {.label = label,
                   .epoch = epoch,
                   .num_epochs = state_->options.num_epochs,
                   .num_steps = num_steps,
                   .first_step = first_step,
                   .world_size = state_->options.world_size,
                   .unit = state_->options.unit};
  state_->began_at = state_->now();
  state_->was_shown = false;
}

void EpochLine::update(const EpochState& state) {
  if (!state_->shows) return;
  const auto now = state_->now();
  if (state_->was_shown && now - state_->shown_at < base::bounded_time(*state_->options.min_interval)) return;
  state_->was_shown = true;
  state_->shown_at = now;
  state_->line.show(report::epoch_parts(state_->figures_of(state), state_->line.is_terminal()));
}

void EpochLine::end(const EpochState& state, bool is_kept) {
  if (!state_->shows) return;
  if (!is_kept && state_->line.is_terminal()) return state_->line.erase();
  state_->line.show(report::ended_epoch_parts(state_->figures_of(state)));
  state_->line.end();
}

void EpochLine::pause() {
  state_->paused_at = state_->now();
  if (state_->shows) state_->line.erase();
}

void EpochLine::resume() { state_->began_at += state_->now() - state_->paused_at; }

void EpochLine::print(std::string_view text) {
  if (state_->options.is_enabled) state_->line.print(text);
}

}  // namespace cohort::train
