#include "cli/train_output.h"

#include <fmt/format.h>

#include "report/table.h"

namespace hydraulis {
namespace {

constexpr double kMib = 1 << 20;

double error_percent(double predicted, double measured) {
  return measured > 0 ? 100 * (predicted - measured) / measured : 0;
}

std::string memory_text(std::int64_t measured, std::int64_t predicted) {
  return fmt::format("memory of the fullest rank: {:.1f} MiB, predicted {:.1f} MiB ({:+.1f} %)",
                     static_cast<double>(measured) / kMib, static_cast<double>(predicted) / kMib,
                     error_percent(static_cast<double>(predicted), static_cast<double>(measured)));
}

}  // namespace

std::string step_heading() {
  return fmt::format("{:>8}  {:>9}  {:>9}  {:>9}  {:>10}  {:>12}  {:>11}  {}\n", "step", "loss",
                     "grad norm", "rate", "tokens/s", "predicted ms", "measured ms", "strategy");
}

std::string step_line(const StepReport& report) {
  std::string line =
      fmt::format("{:>8}  {:>9.5f}  {:>9.4f}  {:>9.2e}  {:>10}  {:>12}  {:>11}  {}", report.step,
                  report.loss, report.gradient_norm, report.learning_rate,
                  grouped_number(static_cast<double>(report.tokens) / report.seconds, 0),
                  grouped_number(1e3 * report.predicted_seconds, 1),
                  grouped_number(1e3 * report.seconds, 1), report.strategy);
  if (!report.updated) line += "  (no update)";
  if (report.validation_loss) line += fmt::format("  validation {:.5f}", *report.validation_loss);
  return line + "\n";
}

Json step_json(const StepReport& report) {
  Json json = {{"step", report.step},
               {"loss", report.loss},
               {"gradient_norm", report.gradient_norm},
               {"learning_rate", report.learning_rate},
               {"targets", report.targets},
               {"tokens", report.tokens},
               {"seconds", report.seconds},
               {"predicted_seconds", report.predicted_seconds},
               {"planner_wait_seconds", report.waited_seconds},
               {"strategy", report.strategy},
               {"updated", report.updated}};
  if (report.validation_loss) json["validation_loss"] = *report.validation_loss;
  return json;
}

std::string to_text(const TrainSummary& summary) {
  std::string text =
      fmt::format("{} steps done{}", summary.steps, summary.stopped ? ", stopped by a signal" : "");
  if (summary.skipped > 0) text += fmt::format(", {} without an update", summary.skipped);
  text += "\n";
  if (summary.mean_seconds > 0) {
    text += fmt::format(
        "mean step: {:.1f} ms measured, {:.1f} ms predicted ({:+.1f} %), the first step left out\n",
        1e3 * summary.mean_seconds, 1e3 * summary.mean_predicted_seconds,
        error_percent(summary.mean_predicted_seconds, summary.mean_seconds));
  }
  if (summary.predicted_peak_bytes > 0) {
    text += memory_text(summary.peak_bytes, summary.predicted_peak_bytes) + "\n";
  }
  if (!summary.checkpoint.empty()) {
    text += fmt::format("checkpoint: {}\n", summary.checkpoint.string());
  }
  return text;
}

Json to_json(const TrainSummary& summary) {
  return {{"steps", summary.steps},
          {"first_step", summary.first_step},
          {"last_loss", summary.last_loss},
          {"mean_seconds", summary.mean_seconds},
          {"mean_predicted_seconds", summary.mean_predicted_seconds},
          {"stopped", summary.stopped},
          {"steps_without_update", summary.skipped},
          {"peak_bytes", summary.peak_bytes},
          {"predicted_peak_bytes", summary.predicted_peak_bytes},
          {"checkpoint", summary.checkpoint.string()}};
}

std::string to_text(const DryRun& run) {
  Table table;
  table.title = fmt::format(
      "{} steps on {} devices, {} parameters; the first {} batches planned: {} tokens a batch, "
      "predicted {:.1f} ms a step (most {:.1f} ms)",
      run.steps, run.devices, grouped_number(static_cast<double>(run.parameters), 0), run.batches,
      grouped_number(run.mean_tokens, 0), 1e3 * run.mean_seconds, 1e3 * run.most_seconds);
  table.columns = {{"strategy", "strategy", 0, Align::left},
                   {"batches", "batches", 0},
                   {"optimizer_mib", "optimizer MiB"},
                   {"parameters_mib", "parameters MiB"},
                   {"gradients_mib", "gradients MiB"},
                   {"activations_mib", "activations MiB"},
                   {"logits_mib", "logits MiB"},
                   {"buffers_mib", "buffers MiB"},
                   {"total_mib", "total MiB"}};
  for (const DryRun::Use& use : run.strategies) {
    const StageMemory& memory = use.fullest;
    table.rows.push_back({use.strategy, use.batches, memory.optimizer / kMib,
                          memory.parameters / kMib, memory.gradients / kMib,
                          memory.activations / kMib, memory.logits / kMib, memory.buffers / kMib,
                          memory.total() / kMib});
  }
  table.notes.push_back(
      fmt::format("memory is that of the fullest device; a device may use {} MiB",
                  grouped_number(static_cast<double>(run.memory_limit_bytes) / kMib, 0)));
  if (run.host_bytes > 0) {
    table.notes.push_back(
        fmt::format("optimizer states are in host memory, {} MiB of it a rank",
                    grouped_number(static_cast<double>(run.host_bytes) / kMib, 1)));
  }
  table.notes.push_back(fmt::format("the whole run: {:.2f} hours predicted",
                                    run.mean_seconds * static_cast<double>(run.steps) / 3600));
  table.notes.insert(table.notes.end(), run.notes.begin(), run.notes.end());
  return to_text(table);
}

Json to_json(const DryRun& run) {
  Json strategies = Json::array();
  for (const DryRun::Use& use : run.strategies) {
    const StageMemory& memory = use.fullest;
    strategies.push_back({{"strategy", use.strategy},
                          {"batches", use.batches},
                          {"optimizer_bytes", memory.optimizer},
                          {"parameter_bytes", memory.parameters},
                          {"gradient_bytes", memory.gradients},
                          {"activation_bytes", memory.activations},
                          {"logit_bytes", memory.logits},
                          {"buffer_bytes", memory.buffers},
                          {"total_bytes", memory.total()}});
  }
  return {{"steps", run.steps},
          {"devices", run.devices},
          {"parameters", run.parameters},
          {"batches", run.batches},
          {"mean_tokens", run.mean_tokens},
          {"mean_seconds", run.mean_seconds},
          {"most_seconds", run.most_seconds},
          {"memory_limit_bytes", run.memory_limit_bytes},
          {"host_bytes", run.host_bytes},
          {"strategies", strategies},
          {"notes", run.notes}};
}

}  // namespace hydraulis
