#include "runtime/run_config.h"

#include <fmt/ranges.h>

#include <limits>

#include "base/error.h"
#include "costmodel/host_states.h"
#include "planner/policy.h"

namespace hydraulis {
namespace {

constexpr std::int64_t kMostSteps = 1'000'000'000;

double share(JsonFields& fields, const std::string& field, double fallback) {
  const double value = fields.number_or(field, fallback);
  if (value < 0 || value >= 1) {
    throw InputError("{}: {}, expected a number in [0, 1)", fields.name(field), value);
  }
  return value;
}

std::filesystem::path named(JsonFields& fields, const std::string& field,
                            const std::filesystem::path& folder) {
  const std::string text = fields.text(field);
  if (text.empty()) throw InputError("{}: is empty, expected a name", fields.name(field));
  return folder / text;
}

double not_negative(JsonFields& fields, const std::string& field, double fallback) {
  const double value = fields.number_or(field, fallback);
  if (value < 0) throw InputError("{}: {}, expected 0 or more", fields.name(field), value);
  return value;
}

void read_optimizer(RunConfig& config, JsonFields fields) {
  const std::string name = fields.text_or("name", "adamw");
  if (name != "adamw" && name != "lamb") {
    throw InputError("{}: \"{}\", expected adamw or lamb", fields.name("name"), name);
  }
  UpdateSettings& update = config.update;
  update.optimizer = name == "lamb" ? OptimizerKind::lamb : OptimizerKind::adamw;
  config.learning_rate.peak = fields.has("learning_rate") ? fields.positive("learning_rate") : 3e-4;
  update.beta1 = share(fields, "beta1", update.beta1);
  update.beta2 = share(fields, "beta2", update.beta2);
  update.epsilon = fields.has("epsilon") ? fields.positive("epsilon") : update.epsilon;
  update.weight_decay = not_negative(fields, "weight_decay", update.weight_decay);
  update.clip_norm = not_negative(fields, "clip_norm", update.clip_norm);
  fields.finish();
}

void read_device(RunConfig& config, JsonFields& fields) {
  const std::string device = fields.text_or("device", "cpu");
  if (device != "cpu" && device != "cuda") {
    throw InputError("{}: \"{}\", expected cpu or cuda", fields.name("device"), device);
  }
  const bool gpu = device == "cuda";
  const std::string type = fields.text_or("precision", gpu ? "bf16" : "f32");
  if (gpu && type != "bf16") {
    throw InputError("{}: \"{}\", expected bf16, which is what GPUs train in",
                     fields.name("precision"), type);
  }
  if (!gpu && type != "f32" && type != "f64") {
    throw InputError("{}: \"{}\", expected f32 or f64 (bf16 needs a GPU, \"device\": \"cuda\")",
                     fields.name("precision"), type);
  }
  if (fields.has("optimizer_states")) {
    const std::string field = "optimizer_states";
    config.optimizer_states = parse_optimizer_states(fields.text(field), fields.name(field));
    if (!gpu && config.optimizer_states == OptimizerStates::host) {
      throw InputError(
          "{}: \"host\" needs GPUs (\"device\": \"cuda\"): on the CPU they are in the host's "
          "memory "
          "already",
          fields.name(field));
    }
  }
  config.device = gpu ? RunDevice::cuda : RunDevice::cpu;
  config.type = gpu ? DataType::bf16 : type == "f64" ? DataType::f64 : DataType::f32;
}

void read_schedule(RunConfig& config, JsonFields fields) {
  LearningRate& rate = config.learning_rate;
  rate.shape = parse_decay(fields.text_or("decay", "cosine"), fields.name("decay"));
  rate.warmup = fields.integer_or("warmup_steps", 0, 0, kMostSteps);
  rate.decay = fields.integer_or("decay_steps", config.steps, 0, kMostSteps);
  rate.minimum = not_negative(fields, "minimum_learning_rate", 0);
  if (rate.minimum > rate.peak) {
    throw InputError("{}: {}, expected at most the learning rate {}",
                     fields.name("minimum_learning_rate"), rate.minimum, rate.peak);
  }
  fields.finish();
}

void read_bad_steps(RunConfig& config, JsonFields fields) {
  const std::string policy = fields.text_or("policy", "skip");
  if (policy != "skip" && policy != "stop") {
    throw InputError("{}: \"{}\", expected skip or stop", fields.name("policy"), policy);
  }
  config.bad_step = policy == "stop" ? BadStep::stop : BadStep::skip;
  config.spike_factor = not_negative(fields, "spike_factor", 0);
  if (config.spike_factor > 0 && config.spike_factor <= 1) {
    throw InputError("{}: {}, expected 0 (off) or more than 1", fields.name("spike_factor"),
                     config.spike_factor);
  }
  config.spike_window = fields.integer_or("window", config.spike_window, 1, 1'000'000);
  config.most_bad_steps = fields.integer_or("most_in_a_row", config.most_bad_steps, 1, kMostSteps);
  fields.finish();
}

/// Unknown names are left to make_policy().
void expect_trainable(const std::string& policy, const std::string& where) {
  std::vector<std::string> trainable;
  bool refused = false;
  for (const PolicyInfo& info : policies()) {
    if (info.trainable) trainable.emplace_back(info.name);
    refused |= policy == info.name && !info.trainable;
  }
  if (!refused) return;
  throw InputError("{}: \"{}\" is simulated only; policies that train are: {}", where, policy,
                   fmt::join(trainable, ", "));
}

}  // namespace

RunConfig load_run_config(const std::filesystem::path& file) {
  const Json json = read_json_file(file);
  const std::string where = file.string();
  JsonFields fields(json, where, "");
  const std::filesystem::path folder = file.parent_path();
  RunConfig config;
  config.file = file;
  config.plan = named(fields, "plan", folder);
  config.output = named(fields, "output", folder);
  if (fields.has("initial")) config.initial = named(fields, "initial", folder);
  config.steps = fields.integer("steps", 1, kMostSteps);
  config.seed = static_cast<std::uint64_t>(
      fields.integer_or("seed", 0, 0, std::numeric_limits<std::int64_t>::max()));
  config.data = fields.at("data");
  config.policy = fields.text_or("policy", config.policy);
  expect_trainable(config.policy, fields.name("policy"));
  read_device(config, fields);
  config.learning_rate.peak = 3e-4;
  config.learning_rate.decay = config.steps;
  const Json nothing = Json::object();
  const auto section = [&](const char* name) {
    return JsonFields(fields.has(name) ? fields.at(name) : nothing, where, name);
  };
  read_optimizer(config, section("optimizer"));
  read_schedule(config, section("schedule"));
  read_bad_steps(config, section("bad_steps"));
  JsonFields validation = section("validation");
  config.validate_every = validation.integer_or("every_steps", 0, 0, kMostSteps);
  config.validation_batches = validation.integer_or("batches", 1, 1, 1'000'000);
  validation.finish();
  JsonFields checkpoint = section("checkpoint");
  config.checkpoint_every = checkpoint.integer_or("every_steps", 0, 0, kMostSteps);
  config.keep_checkpoints = static_cast<int>(checkpoint.integer_or("keep", 2, 1, 1000));
  checkpoint.finish();
  config.threads = static_cast<int>(fields.integer_or("threads", 0, 0, 4096));
  config.memory_limit_bytes = not_negative(fields, "memory_limit_gib", 0) * (1 << 30);
  config.timeout_seconds =
      fields.has("timeout_seconds") ? fields.positive("timeout_seconds") : config.timeout_seconds;
  config.timeline_steps = fields.integer_or("timeline_steps", 0, 0, 100'000);
  fields.finish();
  return config;
}

}  // namespace hydraulis
