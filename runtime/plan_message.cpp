#include "runtime/plan_message.h"

#include "base/json.h"

namespace hydraulis {

std::vector<std::uint8_t> encode(const BatchPlan& plan) {
  Json pipelines = Json::array();
  for (const PipelinePlan& pipeline : plan.pipelines) {
    Json micro_batches = Json::array();
    for (const MicroBatch& batch : pipeline.micro_batches) {
      micro_batches.push_back(Json::array({batch.sequence_ids, batch.lengths, batch.padding}));
    }
    pipelines.push_back(Json::array({to_string(pipeline.scheme), std::move(micro_batches),
                                     pipeline.time_seconds, pipeline.phase}));
  }
  const Json message =
      Json::array({plan.strategy, plan.makespan_seconds, plan.lower_bound_seconds,
                   plan.set_lower_bound_seconds, plan.planning_seconds, std::move(pipelines)});
  return Json::to_cbor(message);
}

BatchPlan decode_plan(const std::vector<std::uint8_t>& bytes) {
  const Json message = Json::from_cbor(bytes);
  BatchPlan plan;
  plan.strategy = message.at(0).get<int>();
  plan.makespan_seconds = message.at(1).get<double>();
  plan.lower_bound_seconds = message.at(2).get<double>();
  plan.set_lower_bound_seconds = message.at(3).get<double>();
  plan.planning_seconds = message.at(4).get<double>();
  for (const Json& pipeline : message.at(5)) {
    PipelinePlan& made = plan.pipelines.emplace_back();
    made.scheme = parse_scheme(pipeline.at(0).get<std::string>(), "a plan from rank 0");
    for (const Json& batch : pipeline.at(1)) {
      made.micro_batches.push_back({batch.at(0).get<std::vector<std::uint64_t>>(),
                                    batch.at(1).get<std::vector<std::uint32_t>>(),
                                    batch.at(2).get<std::uint64_t>()});
    }
    made.time_seconds = pipeline.at(2).get<double>();
    made.phase = pipeline.at(3).get<int>();
  }
  return plan;
}

std::vector<std::uint8_t> encode(const OptimizerLayout& layout) {
  return Json::to_cbor(Json::array({layout.dp, layout.tp, layout.pp}));
}

OptimizerLayout decode_layout(const std::vector<std::uint8_t>& bytes) {
  const Json message = Json::from_cbor(bytes);
  return {message.at(0).get<int>(), message.at(1).get<int>(), message.at(2).get<int>()};
}

}  // namespace hydraulis
