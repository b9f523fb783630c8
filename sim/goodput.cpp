#include "sim/goodput.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "sim/engine.h"
#include "sim/weibull.h"

namespace hydraulis {
namespace {

constexpr std::size_t kDrawn = 16384;

/// Iterations in the order in which the job trains them, with sums, for any number of nodes.
class Tape {
 public:
  Tape(const TrainingJob& job, Random random) : sums_(job.iterations.size()) {
    std::vector<double> drawn(kDrawn);
    for (double& u : drawn) u = random.uniform();
    for (std::size_t missing = 0; missing < sums_.size(); ++missing) {
      const auto& from = job.iterations[missing];
      Sums& to = sums_[missing];
      to.seconds.push_back(0);
      to.tokens.push_back(0);
      for (const double u : drawn) {
        const auto& one = from[static_cast<std::size_t>(u * static_cast<double>(from.size()))];
        to.seconds.push_back(to.seconds.back() + one.seconds);
        to.tokens.push_back(to.tokens.back() + one.tokens);
      }
    }
  }

  /// Seconds of all iterations before a place on the tape, which may lie inside an iteration.
  double seconds(std::size_t missing, double place) const {
    return at(sums_[missing].seconds, place);
  }
  double tokens(double place) const { return at(sums_[0].tokens, place); }

  /// The place reached `seconds` after `from`.
  double place_after(std::size_t missing, double from, double seconds) const {
    const auto& sums = sums_[missing].seconds;
    const double target = this->seconds(missing, from) + seconds;
    const double rounds = std::floor(target / sums.back());
    const double rest = target - rounds * sums.back();
    const auto next = std::upper_bound(sums.begin(), sums.end(), rest);
    const auto i = static_cast<std::size_t>(
        std::clamp<std::ptrdiff_t>(next - sums.begin() - 1, 0, kDrawn - 1));
    const double inside = (rest - sums[i]) / (sums[i + 1] - sums[i]);
    return rounds * static_cast<double>(kDrawn) + static_cast<double>(i) +
           std::clamp(inside, 0.0, 1.0);
  }

  double tokens_per_second() const { return sums_[0].tokens.back() / sums_[0].seconds.back(); }

 private:
  struct Sums {
    std::vector<double> seconds;  ///< of the first i iterations
    std::vector<double> tokens;
  };

  static double at(const std::vector<double>& sums, double place) {
    const double rounds = std::floor(place / static_cast<double>(kDrawn));
    const double rest = place - rounds * static_cast<double>(kDrawn);
    const auto i = static_cast<std::size_t>(rest);
    double sum = rounds * sums.back() + sums[i];
    if (i < kDrawn) sum += (rest - static_cast<double>(i)) * (sums[i + 1] - sums[i]);
    return sum;
  }

  std::vector<Sums> sums_;  ///< by number of missing nodes
};

enum class State { training, stalled, detecting, restarting, waiting };
enum class Kind : std::uint32_t { fails, repaired, step, written, horizon };
constexpr std::uint32_t kKindShift = 29;
constexpr std::uint32_t kNumbers = (1U << kKindShift) - 1;

std::uint32_t payload(Kind kind, std::uint32_t number) {
  return (static_cast<std::uint32_t>(kind) << kKindShift) | (number & kNumbers);
}

class Job {
 public:
  Job(const TrainingJob& job, std::uint64_t replication)
      : job_(job), streams_(job.seed, replication), tape_(job, {streams_.next(), 0}) {
    const std::uint64_t seed = streams_.next();
    const int nodes = job.nodes + (job.fails ? job.recovery.spare_nodes : 0);
    for (int node = 0; node < nodes; ++node) {
      clocks_.emplace_back(seed, static_cast<std::uint64_t>(node));
    }
    for (int node = nodes - 1; node >= job.nodes; --node) spares_.push_back(node);
  }

  JobRun run() {
    engine_.schedule_at(job_.horizon_seconds, payload(Kind::horizon, 0));
    for (int node = 0; node < job_.nodes; ++node) put_in_service(node);
    train();
    engine_.run([this](std::uint32_t what) {
      if (ended_) return;
      const std::uint32_t number = what & kNumbers;
      switch (static_cast<Kind>(what >> kKindShift)) {
        case Kind::fails:
          fail(static_cast<int>(number));
          break;
        case Kind::repaired:
          repaired(static_cast<int>(number));
          break;
        case Kind::step:
          if (number == epoch_) step();
          break;
        case Kind::written:
          if (number == epoch_of_write_) written();
          break;
        case Kind::horizon:
          end();
          break;
      }
    });
    run_.events = engine_.events();
    return run_;
  }

 private:
  std::size_t missing() const { return static_cast<std::size_t>(job_.nodes - in_service_); }

  /// Ends the state that the job is in, and begins another; nothing that was to happen in the old
  /// one happens any more.
  void enter(State next) {
    const double passed = engine_.now() - since_;
    switch (state_) {
      case State::training:
        advance(passed);
        break;
      case State::stalled:
        run_.time.checkpoint += passed;
        break;
      case State::detecting:
      case State::restarting:
        run_.time.recovery += passed;
        break;
      case State::waiting:
        run_.time.waiting += passed;
        break;
    }
    state_ = next;
    since_ = engine_.now();
    epoch_ = (epoch_ + 1) & kNumbers;
  }

  void step_after(double seconds) { later(seconds, payload(Kind::step, epoch_)); }

  /// What lies behind the horizon never happens.
  void later(double seconds, std::uint32_t what) {
    if (engine_.now() + seconds <= job_.horizon_seconds) engine_.schedule_after(seconds, what);
  }

  // Work. `place_` moves on while the job trains; behind `saved_` nothing is safe yet.

  void train() {
    enter(State::training);
    missing_ = missing();
    if (!job_.checkpoints) return;
    if (job_.interval_iterations > 0) {
      due_ = std::floor(place_) + static_cast<double>(job_.interval_iterations);
    } else {
      // Up to the end of the iteration; one that ends a rounding error before the time is meant.
      const double reached =
          tape_.place_after(missing_, place_, job_.interval_seconds * (1 - 1e-12));
      due_ = std::max(std::floor(place_) + 1, std::ceil(reached - 1e-9));
    }
    step_after(tape_.seconds(missing_, due_) - tape_.seconds(missing_, place_));
  }

  void advance(double passed) {
    const double to = at_step_ ? due_ : tape_.place_after(missing_, place_, passed);
    const double whole = tape_.seconds(0, to) - tape_.seconds(0, place_);
    unsafe_.useful += whole;
    unsafe_.degraded += passed - whole;
    place_ = to;
  }

  void keep(WallTime& work) {
    run_.time.useful += work.useful;
    run_.time.degraded += work.degraded;
    work = {};
  }

  void step() {
    at_step_ = true;
    switch (state_) {
      case State::training:
        if (writing_) {
          enter(State::stalled);  // the last one has to be written first
          snapshot_due_ = true;
        } else {
          checkpoint();
        }
        break;
      case State::stalled:
        stalled();
        break;
      case State::detecting:
        recover();
        break;
      case State::restarting:
        train();
        break;
      case State::waiting:
        break;
    }
    at_step_ = false;
  }

  /// A job that is to grow waits for its checkpoint, asynchronous or not.
  bool blocks() const { return !job_.asynchronous || (missing() > 0 && !spares_.empty()); }

  void checkpoint() {
    snapshot_due_ = false;
    enter(State::stalled);
    step_after((job_.asynchronous ? job_.snapshot_seconds : 0) +
               (blocks() ? job_.write_seconds : 0));
    blocked_ = blocks();
  }

  void stalled() {
    if (!blocked_) {
      writing_ = true;
      to_be_saved_ = place_;
      being_written_ = unsafe_;
      unsafe_ = {};
      epoch_of_write_ = (epoch_of_write_ + 1) & kNumbers;
      later(job_.write_seconds, payload(Kind::written, epoch_of_write_));
      train();
      return;
    }
    saved_ = place_;
    keep(unsafe_);
    ++run_.checkpoints;
    if (job_.fails && missing() > 0 && !spares_.empty()) {
      take_spares();
      restart();
    } else {
      train();
    }
  }

  void written() {
    writing_ = false;
    saved_ = to_be_saved_;
    keep(being_written_);
    ++run_.checkpoints;
    if (snapshot_due_) checkpoint();
  }

  // Failures.

  void put_in_service(int node) {
    ++in_service_;
    if (job_.fails) schedule_failure(node);
  }

  void schedule_failure(int node) {
    const double lives = weibull(clocks_[static_cast<std::size_t>(node)].uniform(),
                                 job_.failures.node_mtbf_seconds, job_.failures.weibull_shape);
    later(lives, payload(Kind::fails, static_cast<std::uint32_t>(node)));
  }

  void fail(int node) {
    ++run_.failures;
    Random& clock = clocks_[static_cast<std::size_t>(node)];
    const bool stays = clock.uniform() < job_.failures.transient_share;
    if (stays) {
      schedule_failure(node);
    } else {
      --in_service_;
      const double mean = job_.recovery.repair_seconds;
      const double repair =
          job_.recovery.exponential_repair ? weibull(clock.uniform(), mean, 1) : mean;
      later(repair, payload(Kind::repaired, static_cast<std::uint32_t>(node)));
    }
    if (state_ == State::waiting) return;  // nothing runs that could stop
    enter(State::detecting);
    run_.time.lost +=
        unsafe_.useful + unsafe_.degraded + being_written_.useful + being_written_.degraded;
    unsafe_ = being_written_ = {};
    place_ = saved_;
    writing_ = snapshot_due_ = false;
    epoch_of_write_ = (epoch_of_write_ + 1) & kNumbers;
    step_after(job_.failures.detection_seconds);
  }

  void take_spares() {
    while (missing() > 0 && !spares_.empty()) {
      const int node = spares_.back();
      spares_.pop_back();
      put_in_service(node);
    }
  }

  void restart() {
    enter(State::restarting);
    step_after(job_.failures.restart_seconds + job_.read_seconds);
  }

  void recover() {
    take_spares();
    if (missing() < job_.iterations.size()) {
      restart();
    } else if (state_ != State::waiting) {
      enter(State::waiting);
    }
  }

  void repaired(int node) {
    spares_.push_back(node);
    if (state_ == State::waiting) recover();
  }

  void end() {
    enter(State::waiting);
    keep(being_written_);
    keep(unsafe_);
    run_.tokens = tape_.tokens(place_);
    run_.goodput = run_.tokens / (job_.horizon_seconds * tape_.tokens_per_second());
    ended_ = true;
  }

  const TrainingJob& job_;
  Random streams_;
  Tape tape_;
  std::vector<Random> clocks_;  ///< of every node
  std::vector<int> spares_;     ///< ready, not in service
  int in_service_ = 0;

  Engine engine_;
  State state_ = State::waiting;
  double since_ = 0;
  std::uint32_t epoch_ = 0;
  bool at_step_ = false;
  bool ended_ = false;

  double place_ = 0;
  double due_ = 0;
  double saved_ = 0;
  double to_be_saved_ = 0;
  std::size_t missing_ = 0;  ///< nodes, while training
  bool writing_ = false;
  bool blocked_ = false;       ///< the checkpoint at hand is complete when the job goes on
  bool snapshot_due_ = false;  ///< as soon as the last one is written
  std::uint32_t epoch_of_write_ = 0;
  WallTime unsafe_;         ///< work that no checkpoint holds
  WallTime being_written_;  ///< work that the checkpoint being written holds
  JobRun run_;
};

void require(bool ok, const char* what) {
  if (!ok) throw InputError("goodput: {}", what);
}

void check(const TrainingJob& job) {
  require(job.nodes > 0, "a job needs at least one node");
  require(!job.iterations.empty() && job.iterations.size() <= static_cast<std::size_t>(job.nodes),
          "iterations are needed for all nodes, and at most down to one");
  for (const auto& samples : job.iterations) {
    require(!samples.empty(), "no iterations to draw from");
    for (const IterationSample& sample : samples) {
      require(sample.seconds > 0 && std::isfinite(sample.seconds) && sample.tokens >= 0,
              "an iteration takes no time");
    }
  }
  require(job.horizon_seconds > 0 && std::isfinite(job.horizon_seconds), "no time to simulate");
  require(!job.fails || job.failures.node_mtbf_seconds > 0, "nodes fail all the time");
  require(!job.fails || job.checkpoints, "a job that fails needs checkpoints");
  require(!job.checkpoints || job.interval_iterations > 0 || job.interval_seconds > 0,
          "no interval between checkpoints");
}

}  // namespace

JobRun run_job(const TrainingJob& job, std::uint64_t replication) {
  check(job);
  return Job(job, replication).run();
}

}  // namespace hydraulis
