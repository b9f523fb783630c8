#include "planner/program/program_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>

#include "base/atomic_file.h"
#include "base/error.h"

namespace hydraulis {
namespace {

constexpr std::int64_t kMostDevices = 1 << 20;
constexpr std::int64_t kMostLayers = 100000;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 53;  // exact in every JSON reader
constexpr int kOps = static_cast<int>(Op::barrier) + 1;
constexpr const char* kRecompute[] = {"none", "selective", "full"};
constexpr std::int64_t kNoMicroBatch = -1;

Json scheme_to_json(const Scheme& scheme) {
  Json json = {{"cp", scheme.cp}, {"tp", scheme.tp}, {"pp", scheme.pp}};
  if (scheme.recompute != Recompute::none) {
    json["recompute"] = kRecompute[static_cast<int>(scheme.recompute)];
  }
  if (!scheme.layers.empty()) json["layers"] = scheme.layers;
  if (scheme.group != 0) json["group"] = scheme.group;
  return json;
}

Json instruction_to_json(const Instruction& instruction) {
  Json json = {{"op", to_string(instruction.op)}, {"stream", to_string(instruction.stream)}};
  if (instruction.micro_batch >= 0) json["micro_batch"] = instruction.micro_batch;
  if (instruction.chunk != 0) json["chunk"] = instruction.chunk;
  if (instruction.peer >= 0) json["peer"] = instruction.peer;
  if (instruction.layer_begin != 0 || instruction.layer_end != 0) {
    json["layers"] = {instruction.layer_begin, instruction.layer_end};
  }
  if (instruction.intra_node_bytes != 0) json["intra_node_bytes"] = instruction.intra_node_bytes;
  if (instruction.inter_node_bytes != 0) json["inter_node_bytes"] = instruction.inter_node_bytes;
  if (instruction.transfers != 0) json["transfers"] = instruction.transfers;
  if (!instruction.depends_on.empty()) json["depends_on"] = instruction.depends_on;
  return json;
}

/// Reads one array field; `read` gets each element and its name for messages.
class Reader {
 public:
  explicit Reader(std::string where) : where_(std::move(where)) {}

  JsonFields object(const Json& json, const std::string& path) const {
    return JsonFields(json, where_, path);
  }

  template <typename Read>
  void each(JsonFields& fields, const std::string& field, const std::string& path,
            Read read) const {
    const Json& array = fields.at(field);
    const std::string name = path.empty() ? field : path + "." + field;
    if (!array.is_array()) throw InputError("{}: expected an array", fields.name(field));
    for (std::size_t i = 0; i < array.size(); ++i) read(array[i], fmt::format("{}[{}]", name, i));
  }

  std::int64_t integer(const Json& json, const std::string& path, std::int64_t low,
                       std::int64_t high) const {
    const bool fits = json.is_number_integer() &&
                      (!json.is_number_unsigned() || json.get<std::uint64_t>() <= INT64_MAX);
    if (!fits || json.get<std::int64_t>() < low || json.get<std::int64_t>() > high) {
      throw InputError("{}: field '{}': expected an integer from {} to {}", where_, path, low,
                       high);
    }
    return json.get<std::int64_t>();
  }

  std::vector<int> integers(JsonFields& fields, const std::string& field, const std::string& path,
                            std::int64_t low, std::int64_t high) const {
    std::vector<int> values;
    if (!fields.has(field)) return values;
    each(fields, field, path, [&](const Json& json, const std::string& name) {
      values.push_back(static_cast<int>(integer(json, name, low, high)));
    });
    return values;
  }

  template <typename Enum>
  Enum named(JsonFields& fields, const std::string& field, int count) const {
    const std::string text = fields.text(field);
    for (int i = 0; i < count; ++i) {
      if (text == to_string(static_cast<Enum>(i))) return static_cast<Enum>(i);
    }
    throw InputError("{}: unknown name '{}'", fields.name(field), text);
  }

  Scheme scheme(const Json& json, const std::string& path) const {
    JsonFields fields = object(json, path);
    Scheme scheme;
    scheme.cp = static_cast<int>(fields.integer("cp", 1, kMostDevices));
    scheme.tp = static_cast<int>(fields.integer("tp", 1, kMostDevices));
    scheme.pp = static_cast<int>(fields.integer("pp", 1, kMostDevices));
    const std::string recompute = fields.text_or("recompute", kRecompute[0]);
    const auto found = std::find(std::begin(kRecompute), std::end(kRecompute), recompute);
    if (found == std::end(kRecompute)) {
      throw InputError("{}: expected none, selective or full, not '{}'", fields.name("recompute"),
                       recompute);
    }
    scheme.recompute = static_cast<Recompute>(found - std::begin(kRecompute));
    scheme.layers = integers(fields, "layers", path, 0, kMostLayers);
    scheme.group = static_cast<int>(fields.integer_or("group", 0, 0, kMostDevices));
    fields.finish();
    return scheme;
  }

  MicroBatch micro_batch(const Json& json, const std::string& path) const {
    JsonFields fields = object(json, path);
    MicroBatch batch;
    each(fields, "sequence_ids", path, [&](const Json& id, const std::string& name) {
      if (!id.is_number_unsigned() && !(id.is_number_integer() && id.get<std::int64_t>() >= 0)) {
        throw InputError("{}: field '{}': expected a sequence id, an integer from 0", where_, name);
      }
      batch.sequence_ids.push_back(id.get<std::uint64_t>());
    });
    each(fields, "lengths", path, [&](const Json& length, const std::string& name) {
      batch.lengths.push_back(static_cast<std::uint32_t>(integer(length, name, 0, UINT32_MAX)));
    });
    if (batch.lengths.size() != batch.sequence_ids.size()) {
      throw InputError("{}: {} lengths for {} sequence ids, expected as many",
                       fields.name("lengths"), batch.lengths.size(), batch.sequence_ids.size());
    }
    batch.padding = static_cast<std::uint64_t>(fields.integer_or("padding", 0, 0, kMostBytes));
    fields.finish();
    return batch;
  }

  Instruction instruction(const Json& json, const std::string& path, const Program& program,
                          std::int64_t stages, std::int64_t micro_batches, std::int64_t chunks,
                          std::int64_t index) const {
    JsonFields fields = object(json, path);
    Instruction instruction;
    instruction.op = named<Op>(fields, "op", kOps);
    instruction.stream = named<StreamKind>(fields, "stream", kStreams);
    instruction.micro_batch = static_cast<int>(
        fields.integer_or("micro_batch", kNoMicroBatch, kNoMicroBatch, micro_batches - 1));
    instruction.chunk = static_cast<int>(fields.integer_or("chunk", 0, 0, chunks - 1));
    instruction.peer = static_cast<int>(fields.integer_or("peer", -1, -1, stages - 1));
    if (fields.has("layers")) {
      const std::vector<int> layers =
          integers(fields, "layers", path, kEmbeddingLayer, program.layers + 1);
      if (layers.size() != 2 || layers[0] > layers[1]) {
        throw InputError("{}: expected [begin, end] with begin at most end", fields.name("layers"));
      }
      instruction.layer_begin = layers[0];
      instruction.layer_end = layers[1];
    }
    instruction.intra_node_bytes = fields.integer_or("intra_node_bytes", 0, 0, kMostBytes);
    instruction.inter_node_bytes = fields.integer_or("inter_node_bytes", 0, 0, kMostBytes);
    instruction.transfers = static_cast<int>(fields.integer_or("transfers", 0, 0, INT_MAX));
    instruction.depends_on = integers(fields, "depends_on", path, 0, index - 1);
    fields.finish();
    return instruction;
  }

  Stage stage(const Json& json, const std::string& path, const Program& program,
              std::int64_t stages) const {
    JsonFields fields = object(json, path);
    Stage stage;
    stage.pipeline = static_cast<int>(
        fields.integer("pipeline", 0, static_cast<std::int64_t>(program.pipelines.size()) - 1));
    const PipelineProgram& pipeline = program.pipelines[stage.pipeline];
    stage.index = static_cast<int>(fields.integer("index", 0, pipeline.scheme.pp - 1));
    stage.devices = integers(fields, "devices", path, 0, program.devices - 1);
    const std::vector<int> layers = integers(fields, "layers", path, 0, program.layers);
    if (layers.size() != 2 || layers[0] > layers[1]) {
      throw InputError("{}: expected [begin, end] with begin at most end", fields.name("layers"));
    }
    stage.layer_begin = layers[0];
    stage.layer_end = layers[1];
    if (fields.has("more_layers")) {
      each(fields, "more_layers", path, [&](const Json& range, const std::string& name) {
        if (!range.is_array() || range.size() != 2) {
          throw InputError("{}: field '{}': expected [begin, end]", where_, name);
        }
        const auto begin = static_cast<int>(integer(range[0], name, 0, program.layers));
        const auto end = static_cast<int>(integer(range[1], name, begin, program.layers));
        stage.more_layers.push_back({begin, end});
      });
    }
    stage.has_embedding = fields.boolean_or("has_embedding", false);
    stage.has_head = fields.boolean_or("has_head", false);
    each(fields, "instructions", path, [&](const Json& element, const std::string& name) {
      stage.instructions.push_back(instruction(
          element, name, program, stages, static_cast<std::int64_t>(pipeline.micro_batches.size()),
          chunks_of(stage), static_cast<std::int64_t>(stage.instructions.size())));
    });
    fields.finish();
    return stage;
  }

 private:
  std::string where_;
};

/// Stages of a pipeline are consecutive and its schemes' sizes are what the stages have.
void check_stages(const Program& program, const std::string& where) {
  std::int64_t next = 0;
  for (std::size_t p = 0; p < program.pipelines.size(); ++p) {
    const PipelineProgram& pipeline = program.pipelines[p];
    const std::int64_t end = next + pipeline.scheme.pp;
    if (pipeline.first_stage != next || end > static_cast<std::int64_t>(program.stages.size())) {
      throw InputError(
          "{}: field 'pipelines[{}].first_stage': expected {} and {} stages from there", where, p,
          next, pipeline.scheme.pp);
    }
    for (; next < end; ++next) {
      const Stage& stage = program.stages[next];
      if (stage.pipeline != static_cast<int>(p) ||
          stage.index != static_cast<int>(next) - pipeline.first_stage) {
        throw InputError("{}: field 'stages[{}]': expected stage {} of pipeline {}", where, next,
                         next - pipeline.first_stage, p);
      }
      const std::int64_t devices =
          static_cast<std::int64_t>(pipeline.scheme.cp) * pipeline.scheme.tp;
      if (static_cast<std::int64_t>(stage.devices.size()) != devices) {
        throw InputError("{}: field 'stages[{}].devices': expected {} devices (cp x tp), not {}",
                         where, next, devices, stage.devices.size());
      }
    }
  }
  if (next != static_cast<std::int64_t>(program.stages.size())) {
    throw InputError("{}: field 'stages': expected {}, the sum of the pipelines' pp, not {}", where,
                     next, program.stages.size());
  }
}

}  // namespace

Json program_to_json(const Program& program) {
  Json json = {
      {"format", "hydraulis program"},
      {"version", 1},
      {"model", program.model_name},
      {"layers", program.layers},
      {"devices", program.devices},
      {"devices_per_node", program.devices_per_node},
      {"optimizer_layout",
       {{"dp", program.optimizer.dp}, {"tp", program.optimizer.tp}, {"pp", program.optimizer.pp}}}};
  if (program.sharding == ParameterSharding::sharded) json["parameters"] = "sharded";
  json["pipelines"] = Json::array();
  for (const PipelineProgram& pipeline : program.pipelines) {
    Json batches = Json::array();
    for (const MicroBatch& batch : pipeline.micro_batches) {
      Json one = {{"sequence_ids", batch.sequence_ids}, {"lengths", batch.lengths}};
      if (batch.padding != 0) one["padding"] = batch.padding;
      batches.push_back(std::move(one));
    }
    json["pipelines"].push_back({{"scheme", scheme_to_json(pipeline.scheme)},
                                 {"first_stage", pipeline.first_stage},
                                 {"micro_batches", std::move(batches)}});
    if (pipeline.phase != 0) json["pipelines"].back()["phase"] = pipeline.phase;
  }
  json["stages"] = Json::array();
  for (const Stage& stage : program.stages) {
    Json one = {{"pipeline", stage.pipeline}, {"index", stage.index}, {"devices", stage.devices}};
    one["layers"] = {stage.layer_begin, stage.layer_end};
    for (const LayerRange& range : stage.more_layers) {
      one["more_layers"].push_back({range.begin, range.end});
    }
    if (stage.has_embedding) one["has_embedding"] = true;
    if (stage.has_head) one["has_head"] = true;
    one["instructions"] = Json::array();
    for (const Instruction& instruction : stage.instructions) {
      one["instructions"].push_back(instruction_to_json(instruction));
    }
    json["stages"].push_back(std::move(one));
  }
  return json;
}

Program program_from_json(const Json& json, const std::string& where) {
  const Reader reader(where);
  JsonFields fields = reader.object(json, "");
  if (const std::string format = fields.text("format"); format != "hydraulis program") {
    throw InputError("{}: expected 'hydraulis program', not '{}'", fields.name("format"), format);
  }
  fields.integer("version", 1, 1);
  Program program;
  program.model_name = fields.text("model");
  program.layers = static_cast<int>(fields.integer("layers", 1, kMostLayers));
  program.devices = static_cast<int>(fields.integer("devices", 1, kMostDevices));
  program.devices_per_node = static_cast<int>(fields.integer("devices_per_node", 1, kMostDevices));
  JsonFields optimizer = reader.object(fields.at("optimizer_layout"), "optimizer_layout");
  program.optimizer.dp = static_cast<int>(optimizer.integer("dp", 1, kMostDevices));
  program.optimizer.tp = static_cast<int>(optimizer.integer("tp", 1, kMostDevices));
  program.optimizer.pp = static_cast<int>(optimizer.integer("pp", 1, kMostDevices));
  optimizer.finish();
  const std::string parameters = fields.text_or("parameters", "replicated");
  if (parameters != "replicated" && parameters != "sharded") {
    throw InputError("{}: expected replicated or sharded, not '{}'", fields.name("parameters"),
                     parameters);
  }
  if (parameters == "sharded") program.sharding = ParameterSharding::sharded;

  const Json& stages = fields.at("stages");
  if (!stages.is_array()) throw InputError("{}: expected an array", fields.name("stages"));
  const auto count = static_cast<std::int64_t>(stages.size());
  reader.each(fields, "pipelines", "", [&](const Json& element, const std::string& path) {
    JsonFields one = reader.object(element, path);
    PipelineProgram pipeline;
    pipeline.scheme = reader.scheme(one.at("scheme"), path + ".scheme");
    pipeline.first_stage = static_cast<int>(one.integer("first_stage", 0, count));
    const int last = program.pipelines.empty() ? 0 : program.pipelines.back().phase;
    const int next = program.pipelines.empty() ? 0 : last + 1;
    // Left out in programs of one phase.
    if (last > 0 || one.has("phase")) {
      pipeline.phase = static_cast<int>(one.integer("phase", last, next));
    }
    reader.each(one, "micro_batches", path, [&](const Json& batch, const std::string& name) {
      pipeline.micro_batches.push_back(reader.micro_batch(batch, name));
    });
    one.finish();
    program.pipelines.push_back(std::move(pipeline));
  });
  reader.each(fields, "stages", "", [&](const Json& element, const std::string& path) {
    program.stages.push_back(reader.stage(element, path, program, count));
  });
  fields.finish();
  check_stages(program, where);
  return program;
}

void write_program(const Program& program, const std::filesystem::path& path) {
  write_text_file(path, to_text(program_to_json(program)));
}

Program read_program(const std::filesystem::path& path) {
  return program_from_json(read_json_file(path), path.string());
}

}  // namespace hydraulis
