#include "runtime/run_checkpoint.h"

#include <map>
#include <utility>

#include "runtime/agreement.h"
#include "runtime/checkpoint_folder.h"
#include "runtime/hugging_face.h"
#include "runtime/shard_io.h"

namespace hydraulis {
namespace {

const char* const kFirstMoments = "optimizer.m.";
const char* const kSecondMoments = "optimizer.v.";

/// What makes two decoders the same for loading weights.
bool same_shape(const ModelSpec& a, const ModelSpec& b) {
  return a.layers == b.layers && a.hidden == b.hidden && a.ffn_hidden == b.ffn_hidden &&
         a.heads == b.heads && a.kv_heads == b.kv_heads && a.head_dim == b.head_dim &&
         a.vocab == b.vocab && a.tied_embeddings == b.tied_embeddings && a.qkv_bias == b.qkv_bias &&
         a.qk_norm == b.qk_norm;
}

template <typename T>
CheckpointPart write_part(const std::filesystem::path& root, std::int64_t step,
                          const Communicator& world, StoredType type,
                          const std::map<std::string, WholeTensor>& tensors) {
  std::vector<StoredTensor> stored;
  for (const auto& [name, whole] : tensors) stored.push_back({name, type, whole.tensor.shape});
  return write_checkpoint_part<T>(
      root, step, world.rank(), world.size(), std::move(stored),
      [&](const StoredTensor& tensor, std::int64_t first, std::span<T> values) {
        const std::vector<double>& from = tensors.at(tensor.name).values;
        for (std::size_t i = 0; i < values.size(); ++i) {
          values[i] = static_cast<T>(from[first + i]);
        }
      });
}

Json optimizer_json(const RunConfig& config, const RunCheckpoint& state,
                    const OptimizerShard& shard) {
  const UpdateSettings& update = config.update;
  return {{"name", update.optimizer == OptimizerKind::lamb ? "lamb" : "adamw"},
          {"updates", state.updates},
          {"learning_rate", config.learning_rate.peak},
          {"beta1", update.beta1},
          {"beta2", update.beta2},
          {"epsilon", update.epsilon},
          {"weight_decay", update.weight_decay},
          {"clip_norm", update.clip_norm},
          {"layout",
           {{"dp", shard.layout().dp}, {"tp", shard.layout().tp}, {"pp", shard.layout().pp}}}};
}

}  // namespace

std::filesystem::path save_checkpoint(const Backend& backend, const RunConfig& config,
                                      const DecoderSpec& decoder, const OptimizerShard& shard,
                                      const RunCheckpoint& state) {
  const std::filesystem::path root = config.output / "checkpoints";
  const bool leads = backend.world->rank() == 0;
  together(backend.hosts(), [&] {
    if (leads) begin_checkpoint(root, state.step);
  });
  std::map<std::string, WholeTensor> mine;
  for (const auto& [prefix, of] :
       {std::pair{"", shard.parameters()}, std::pair{kFirstMoments, shard.first_moments()},
        std::pair{kSecondMoments, shard.second_moments()}}) {
    for (WholeTensor& whole : gather_tensors(backend, shard, of, decoder)) {
      std::string name = prefix + whole.tensor.name;
      mine.emplace(std::move(name), std::move(whole));
    }
  }
  const bool wide = backend.type == DataType::f64;
  const StoredType type = wide ? StoredType::f64 : StoredType::f32;
  CheckpointPart part;
  together(backend.hosts(), [&] {
    part = wide ? write_part<double>(root, state.step, *backend.world, type, mine)
                : write_part<float>(root, state.step, *backend.world, type, mine);
  });
  mine.clear();
  const std::vector<std::string> parts = gather_texts(backend, to_json(part).dump());
  together(backend.hosts(), [&] {
    if (!leads) return;
    CheckpointManifest manifest;
    manifest.step = state.step;
    manifest.decoder = decoder;
    manifest.type = type;
    manifest.optimizer = optimizer_json(config, state, shard);
    manifest.data = state.data;
    manifest.random = {{"seed", config.seed}};
    manifest.statistics = {{"recent_losses", state.recent_losses}};
    for (const std::string& text : parts) {
      manifest.parts.push_back(checkpoint_part_from_json(Json::parse(text), "a rank's part"));
    }
    commit_checkpoint(root, manifest);
    retain_checkpoints(root, config.keep_checkpoints);
  });
  return checkpoint_path(root, state.step);
}

std::optional<RunCheckpoint> load_newest(const Backend& backend, const std::filesystem::path& root,
                                         const DecoderSpec& decoder, const OptimizerShard& shard,
                                         const std::function<void(const std::string&)>& note) {
  // Rank 0 looks and cleans; the others take what it found.
  std::string found;
  together(backend.hosts(), [&] {
    if (backend.world->rank() != 0) return;
    for (const std::string& name : clean_checkpoints(root)) note("removed unfinished " + name);
    const NewestCheckpoint newest = newest_checkpoint(root);
    for (const std::string& line : newest.notes) note(line);
    if (newest.checkpoint) {
      found = newest.checkpoint->path.string();
    } else if (!newest.notes.empty()) {
      throw InputError("{}: none of {} checkpoints is whole; remove them to begin anew",
                       root.string(), newest.notes.size());
    }
  });
  const std::vector<std::uint8_t> path =
      broadcast_bytes(backend, std::vector<std::uint8_t>(found.begin(), found.end()));
  if (path.empty()) return std::nullopt;
  RunCheckpoint state;
  together(backend.hosts(), [&] {
    const std::filesystem::path folder(std::string(path.begin(), path.end()));
    const CheckpointManifest manifest = read_manifest(folder);
    if (!same_shape(manifest.decoder.shape, decoder.shape)) {
      throw InputError("{}: a checkpoint of {}, which is not the plan's model {}", folder.string(),
                       manifest.decoder.shape.name, decoder.shape.name);
    }
    const CheckpointTensors tensors(folder, manifest);
    for (const auto& [prefix, into] :
         {std::pair{"", shard.parameters()}, std::pair{kFirstMoments, shard.first_moments()},
          std::pair{kSecondMoments, shard.second_moments()}}) {
      load_shard(shard, into, decoder,
                 [&, before = std::string(prefix)](const LogicalTensor& tensor, std::int64_t first,
                                                   std::span<double> values) {
                   tensors.read<double>(before + tensor.name, first, values);
                 });
    }
    state.step = manifest.step;
    JsonFields optimizer(manifest.optimizer, folder.string(), "optimizer");
    state.updates = optimizer.integer("updates", 0, manifest.step);
    state.data = manifest.data;
    const Json losses = manifest.statistics.value("recent_losses", Json::array());
    if (losses.is_array()) {
      for (const Json& loss : losses) {
        if (loss.is_number()) state.recent_losses.push_back(loss.get<double>());
      }
    }
  });
  return state;
}

void load_hugging_face(const std::filesystem::path& folder, const DecoderSpec& decoder,
                       const OptimizerShard& shard) {
  const HuggingFaceModel model(folder);
  if (!same_shape(model.decoder().shape, decoder.shape)) {
    throw InputError("{}: its shape is not that of the plan's model {}", folder.string(),
                     decoder.shape.name);
  }
  std::map<std::string, std::size_t> index;
  for (std::size_t i = 0; i < model.tensors().size(); ++i) index[model.tensors()[i].name] = i;
  load_shard(shard, shard.parameters(), decoder,
             [&](const LogicalTensor& tensor, std::int64_t first, std::span<double> values) {
               model.read<double>(index.at(tensor.name), first, values);
             });
}

}  // namespace hydraulis
