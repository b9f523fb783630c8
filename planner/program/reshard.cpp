#include "planner/program/reshard.h"

#include <algorithm>
#include <set>
#include <stdexcept>

namespace hydraulis {
namespace {

/// Whether `right` moves more than `left`.
bool is_busier(const ReshardSummary& left, const ReshardSummary& right) {
  const auto key = [](const ReshardSummary& summary) {
    return std::tuple(summary.inter_node_bytes, summary.intra_node_bytes, summary.messages);
  };
  return key(left) < key(right);
}

}  // namespace

TransferPlanner::TransferPlanner(const Layout& from, int devices_per_node)
    : devices_per_node_(devices_per_node), segments_(kTensorKinds) {
  std::vector<std::vector<Holding>> by_kind(kTensorKinds);
  for (const Holding& holding : from) {
    by_kind[static_cast<int>(holding.tensor)].push_back(holding);
  }
  for (int kind = 0; kind < kTensorKinds; ++kind) {
    std::vector<std::int64_t> cuts;
    for (const Holding& holding : by_kind[kind]) {
      cuts.push_back(holding.begin);
      cuts.push_back(holding.end);
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<Segment>& segments = segments_[kind];
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      segments.push_back({cuts[i], cuts[i + 1], {}});
    }
    for (const Holding& holding : by_kind[kind]) {
      auto i = std::lower_bound(cuts.begin(), cuts.end(), holding.begin) - cuts.begin();
      for (; cuts[i] < holding.end; ++i) segments[i].devices.push_back(holding.device);
    }
    for (Segment& segment : segments) {
      std::sort(segment.devices.begin(), segment.devices.end());
      segment.devices.erase(std::unique(segment.devices.begin(), segment.devices.end()),
                            segment.devices.end());
      single_holders_ &= segment.devices.size() <= 1;
    }
  }
}

int TransferPlanner::choose(const std::vector<int>& devices, int destination,
                            const std::map<int, std::int64_t>& sent) const {
  if (devices.size() == 1) return devices.front();
  if (std::binary_search(devices.begin(), devices.end(), destination)) return destination;
  const auto rank = [&](int device) {
    const bool far = device / devices_per_node_ != destination / devices_per_node_;
    const auto load = sent.find(device);
    return std::tuple(far, load == sent.end() ? std::int64_t{0} : load->second, device);
  };
  return *std::min_element(devices.begin(), devices.end(),
                           [&](int left, int right) { return rank(left) < rank(right); });
}

std::vector<Transfer> TransferPlanner::plan(const Layout& to, int bytes_per_element) const {
  std::vector<Transfer> transfers;
  std::map<int, std::int64_t> sent;
  for (const Holding& holding : to) {
    if (holding.begin >= holding.end) continue;
    const std::vector<Segment>& segments = segments_[static_cast<int>(holding.tensor)];
    auto segment = std::upper_bound(
        segments.begin(), segments.end(), holding.begin,
        [](std::int64_t element, const Segment& candidate) { return element < candidate.end; });
    const std::size_t first = transfers.size();
    for (std::int64_t at = holding.begin; at < holding.end; ++segment) {
      if (segment == segments.end() || segment->begin > at || segment->devices.empty()) {
        throw std::logic_error("reshard: no device holds every element of " +
                               std::string(to_string(holding.tensor)));
      }
      const std::int64_t end = std::min(segment->end, holding.end);
      const int source = choose(segment->devices, holding.device, sent);
      const std::int64_t bytes = source == holding.device ? 0 : (end - at) * bytes_per_element;
      if (bytes > 0 && segment->devices.size() > 1) sent[source] += bytes;
      if (transfers.size() > first && transfers.back().source == source) {
        transfers.back().end = end;
        transfers.back().bytes += bytes;
      } else {
        transfers.push_back({source, holding.device, holding.tensor, at, end, bytes});
      }
      at = end;
    }
  }
  return transfers;
}

std::vector<Transfer> plan_transfers(const Layout& from, const Layout& to, int devices_per_node,
                                     int bytes_per_element) {
  return TransferPlanner(from, devices_per_node).plan(to, bytes_per_element);
}

ReshardSummary summarise(const std::vector<Transfer>& transfers, int devices_per_node) {
  struct Received {
    ReshardSummary summary;
    std::vector<int> senders;
  };
  std::map<int, Received> by_device;
  for (const Transfer& transfer : transfers) {
    if (transfer.source == transfer.destination) continue;
    Received& received = by_device[transfer.destination];
    const bool near = transfer.source / devices_per_node == transfer.destination / devices_per_node;
    (near ? received.summary.intra_node_bytes : received.summary.inter_node_bytes) +=
        transfer.bytes;
    received.senders.push_back(transfer.source);
  }
  ReshardSummary busiest;
  for (auto& [device, received] : by_device) {
    std::vector<int>& senders = received.senders;
    std::sort(senders.begin(), senders.end());
    received.summary.messages =
        static_cast<int>(std::unique(senders.begin(), senders.end()) - senders.begin());
    busiest = std::max(busiest, received.summary, is_busier);
  }
  return busiest;
}

GatherPlanner::GatherPlanner(const ModelSpec& model, const OptimizerLayout& optimizer,
                             int devices_per_node)
    : model_(model), optimizer_(optimizer), devices_per_node_(devices_per_node) {
  Scheme scheme;
  scheme.tp = optimizer.tp;
  scheme.pp = optimizer.pp;
  const std::vector<int> counts = stage_layers(scheme, model.layers);
  for (int stage = 0; stage < optimizer.pp; ++stage) {
    stage_of_layer_.insert(stage_of_layer_.end(), counts[stage], stage);
  }
}

int GatherPlanner::representative(int layer) const {
  if (layer == kEmbeddingLayer || layer == model_.layers) return layer;
  const auto first =
      std::lower_bound(stage_of_layer_.begin(), stage_of_layer_.end(), stage_of_layer_[layer]);
  return static_cast<int>(first - stage_of_layer_.begin());
}

const TransferPlanner& GatherPlanner::planner(int key) {
  auto found = planners_.find(key);
  if (found == planners_.end()) {
    Layout layout = optimizer_layout(model_, optimizer_, key);
    if (key == model_.layers && model_.tied_embeddings) {
      const Layout embedding = optimizer_layout(model_, optimizer_, kEmbeddingLayer);
      layout.insert(layout.end(), embedding.begin(), embedding.end());
    }
    found = planners_.try_emplace(key, layout, devices_per_node_).first;
  }
  return found->second;
}

std::vector<Transfer> GatherPlanner::transfers(const Stage& stage, int tp, int layer) {
  return planner(representative(layer))
      .plan(stage_layout(model_, stage, tp, layer), kParameterBytes);
}

// Stages of one tp differ in where their devices are, not in what those compute with, but for a
// tied head that comes with the embedding where the stage has none.
const GatherPlanner::Owners& GatherPlanner::owners(const Stage& stage, int tp, int key,
                                                   std::size_t member) {
  const int rank = static_cast<int>(member) % tp;
  const auto [found, fresh] = owners_.try_emplace({key, tp, rank, stage.has_embedding});
  if (!fresh) return found->second;
  Layout share;
  for (Holding holding : stage_layout(model_, stage, tp, key)) {
    if (holding.device != stage.devices[member]) continue;
    holding.device = -1;  // somebody who owns nothing
    share.push_back(holding);
  }
  std::map<int, std::int64_t> bytes;
  for (const Transfer& transfer : planner(key).plan(share, kParameterBytes)) {
    bytes[transfer.source] += transfer.bytes;
  }
  found->second.bytes.assign(bytes.begin(), bytes.end());
  for (const auto& [owner, held] : bytes) found->second.all += held;
  return found->second;
}

ReshardSummary GatherPlanner::summary(const Stage& stage, int tp, int layer) {
  const int key = representative(layer);
  if (!planner(key).single_holders()) {
    return summarise(transfers(stage, tp, layer), devices_per_node_);
  }
  ReshardSummary busiest;
  for (std::size_t member = 0; member < stage.devices.size(); ++member) {
    const int device = stage.devices[member];
    const int node = device / devices_per_node_;
    const auto& [owners, all] = this->owners(stage, tp, key, member);
    ReshardSummary received;
    received.messages = static_cast<int>(owners.size());
    received.inter_node_bytes = all;
    auto near = std::lower_bound(owners.begin(), owners.end(),
                                 std::pair{node * devices_per_node_, std::int64_t{0}});
    for (; near != owners.end() && near->first / devices_per_node_ == node; ++near) {
      received.inter_node_bytes -= near->second;
      if (near->first == device) {
        --received.messages;
      } else {
        received.intra_node_bytes += near->second;
      }
    }
    busiest = std::max(busiest, received, is_busier);
  }
  return busiest;
}

std::vector<std::pair<int, ReshardSummary>> GatherPlanner::stage_summaries(const Stage& stage,
                                                                           int tp) {
  std::vector<std::pair<int, ReshardSummary>> summaries;
  const auto add = [&](int layer) { summaries.emplace_back(layer, summary(stage, tp, layer)); };
  if (stage.has_embedding) add(kEmbeddingLayer);
  for (int chunk = 0; chunk < chunks_of(stage); ++chunk) {
    const LayerRange range = layers_of(stage, chunk);
    for (int layer = range.begin; layer < range.end; ++layer) {
      const bool like_the_last =
          layer > range.begin && stage_of_layer_[layer] == stage_of_layer_[layer - 1];
      if (like_the_last) {
        summaries.emplace_back(layer, summaries.back().second);
      } else {
        add(layer);
      }
    }
  }
  if (stage.has_head) add(model_.layers);
  return summaries;
}

}  // namespace hydraulis
