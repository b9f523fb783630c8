#include "cli/faults_option.h"

#include "base/error.h"
#include "cli/planning.h"
#include "sim/known_stragglers.h"

namespace hydraulis {

CLI::Option* add_faults_options(CLI::App& command, FaultsOptions& options) {
  CLI::Option* file =
      command
          .add_option("--faults", options.path,
                      "file of jitter, stragglers, slow links and failures (docs/formats.md)")
          ->check(not_empty());
  command
      .add_flag("--known-stragglers", options.known,
                "plan for the speeds of nodes that the file has slow for good")
      ->needs(file);
  return file;
}

Faults faults_on(const FaultsOptions& options, const ClusterSpec& cluster) {
  if (options.path.empty()) return {};
  Faults faults = load_faults(options.path);
  check_variance(faults.variance, cluster, options.path);
  return faults;
}

PlanResult plan_under_faults(const CLI::App& command, const std::string& plan_path,
                             CommonOptions& common, const LengthTrace& trace,
                             const FaultsOptions& options, Faults& faults) {
  if (!options.known) {
    PlanResult plan = plan_for_run(command, plan_path, common, trace);
    faults = faults_on(options, plan.model.cluster);
    return plan;
  }
  if (!plan_path.empty()) {
    throw InputError(
        "--known-stragglers: the plan {} is made already; leave --plan out, or give "
        "its cluster's groups their relative_speed",
        plan_path);
  }
  const PlanRequest request = plan_request(command, common);
  const ClusterSpec cluster = load_cluster(request.cluster);
  faults = faults_on(options, cluster);
  std::optional<Profile> profile;
  if (!request.profile.empty()) profile = load_profile(request.profile);
  return make_plan(request, load_model(request.model),
                   with_known_stragglers(cluster, faults.variance), profile, &trace);
}

void note_variance(const Variance& variance, const ClusterSpec& cluster, Notes& notes) {
  for (std::string& line : variance_notes(variance, cluster)) {
    notes.brief.push_back(std::move(line));
  }
  if (!variance.contained.empty()) {
    notes.brief.push_back("the planner knows the speeds of nodes that are slow for good");
  }
}

}  // namespace hydraulis
