// Steps of several tasks that srun starts without MPI: processes on the emulated CUDA backend that
// find one another by Slurm's environment alone.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <tuple>

#include "base/atomic_file.h"
#include "tests/base/temporary_folder.h"

namespace hydraulis {
namespace {

using testing::HasSubstr;
using Environment = std::map<std::string, std::string>;

struct Ended {
  int code = -1;  ///< or minus the signal
  std::string err;
};

/// A process, as a launcher starts it.
class Task {
 public:
  Task(const std::filesystem::path& folder, const std::string& name,
       const std::vector<std::string>& words, const Environment& environment)
      : err_(folder / (name + ".err")) {
    process_ = ::fork();
    if (process_ != 0) return;
    for (const char* variable : {"MASTER_ADDR", "MASTER_PORT"}) ::unsetenv(variable);
    for (const auto& [variable, value] : environment) {
      ::setenv(variable.c_str(), value.c_str(), 1);
    }
    if (::chdir(folder.c_str()) != 0) ::_exit(126);
    to(STDOUT_FILENO, folder / (name + ".out"));
    to(STDERR_FILENO, err_);
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  pid_t process() const { return process_; }
  Ended wait() const {
    int status = 0;
    ::waitpid(process_, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read_text_file(err_)};
  }

 private:
  static void to(int descriptor, const std::filesystem::path& file) {
    const int opened = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(opened, descriptor);
    ::close(opened);
  }
  std::filesystem::path err_;
  pid_t process_ = -1;
};

/// Steps as srun starts them without MPI, of the tiny model.
class CudaStep : public testing::Test {
 protected:
  CudaStep() { ::mkdir((folder_.path() / "letters").c_str(), 0700); }

  /// What srun sets for a task.
  Environment task_environment(int rank, int size) const {
    return {
        {"SLURM_JOB_ID", std::to_string(::getpid())},   {"SLURM_STEP_ID", std::to_string(step_id_)},
        {"SLURM_STEP_NUM_TASKS", std::to_string(size)}, {"SLURM_NTASKS", std::to_string(size)},
        {"SLURM_PROCID", std::to_string(rank)},         {"SLURM_LOCALID", std::to_string(rank)},
        {"SLURM_STEP_NODELIST", "localhost"},           {"HYDRAULIS_EMULATED_NCCL", letters()}};
  }
  std::string letters() const { return (folder_.path() / "letters").string(); }

  /// `arguments` as emulated_step takes them, blanks between them.
  static std::vector<std::string> words_of(const std::string& arguments) {
    std::vector<std::string> words = {HYDRAULIS_EMULATED_STEP};
    std::istringstream in(arguments);
    for (std::string word; in >> word;) words.push_back(word);
    return words;
  }
  Task start(int rank, int size, const std::string& arguments,
             const Environment& changes = {}) const {
    Environment environment = task_environment(rank, size);
    for (const auto& [variable, value] : changes) environment[variable] = value;
    return {folder_.path(), "task-" + std::to_string(rank), words_of(arguments), environment};
  }
  /// What rank 0 printed of a step that must succeed.
  std::string trained(int size, const std::string& arguments) {
    ++step_id_;
    std::vector<Task> tasks;
    for (int rank = 0; rank < size; ++rank) tasks.push_back(start(rank, size, arguments));
    for (const Task& task : tasks) {
      const Ended ended = task.wait();
      EXPECT_EQ(ended.code, 0) << ended.err;
    }
    return read_text_file(folder_.path() / "task-0.out");
  }
  std::string trained_by_mpirun(int size, const std::string& arguments) const {
    std::vector<std::string> words = words_of(arguments);
    words.insert(words.begin(), {HYDRAULIS_SOURCE_DIR "/tests/mpirun.sh", std::to_string(size)});
    const Ended ended =
        Task(folder_.path(), "mpirun", words, {{"HYDRAULIS_EMULATED_NCCL", letters()}}).wait();
    EXPECT_EQ(ended.code, 0) << ended.err;
    return read_text_file(folder_.path() / "mpirun.out");
  }

  /// Losses and norms, in turn.
  static std::vector<double> numbers(const std::string& text) {
    std::istringstream in(text);
    std::vector<double> all;
    for (double number = 0; in >> number;) all.push_back(number);
    return all;
  }
  static std::ptrdiff_t lines(const std::string& text) {
    return std::count(text.begin(), text.end(), '\n');
  }

  TemporaryFolder folder_;
  int step_id_ = 0;
};

TEST_F(CudaStep, TrainsAsUnderMpirun) {
  for (const auto& [ranks, degrees] : {std::pair{1, "1 1"}, {2, "2 1"}, {4, "2 2"}}) {
    const std::string arguments = std::string("gpu 3 ") + degrees + " device";
    const std::string by_srun = trained(ranks, arguments);
    EXPECT_EQ(by_srun, trained_by_mpirun(ranks, arguments)) << ranks << " ranks";
    const std::vector<double> course = numbers(by_srun);
    ASSERT_EQ(course.size(), 6u);
    EXPECT_LT(course[4], 0.97 * course[0]);
  }
}

TEST_F(CudaStep, StatesMoveBetweenHostAndDeviceOnResuming) {
  const std::vector<double> right = numbers(trained(2, "gpu 3 1 1 device"));
  std::vector<double> moved = numbers(trained(2, "gpu 2 1 1 host out"));
  const std::vector<double> rest = numbers(trained(2, "gpu 1 1 1 device out"));
  moved.insert(moved.end(), rest.begin(), rest.end());
  ASSERT_EQ(moved.size(), right.size());
  EXPECT_EQ(moved[0], right[0]);
  EXPECT_EQ(moved[1], right[1]);
  for (std::size_t i = 2; i < right.size(); i += 2) EXPECT_NEAR(moved[i], right[i], 1e-3) << i;
}

TEST_F(CudaStep, ATaskThatDoesNotComeIsNamed) {
  const Environment soon = {{"HYDRAULIS_TIMEOUT_SECONDS", "6"}};
  std::vector<Task> tasks;
  for (const int rank : {0, 3}) tasks.push_back(start(rank, 4, "gpu 1 2 2 device", soon));
  for (const Task& task : tasks) {
    const Ended ended = task.wait();
    EXPECT_EQ(ended.code, 1);
    EXPECT_THAT(ended.err, HasSubstr("ranks 1, 2 of 4 have not come within 6 s"));
    EXPECT_EQ(lines(ended.err), 1) << ended.err;
  }
  const Ended alone = start(2, 4, "gpu 1 2 2 device", {{"HYDRAULIS_TIMEOUT_SECONDS", "1"}}).wait();
  EXPECT_EQ(alone.code, 1);
  EXPECT_THAT(alone.err, HasSubstr("rank 0 does not answer at localhost port "));
  EXPECT_EQ(lines(alone.err), 1) << alone.err;
}

TEST_F(CudaStep, TasksOfUnlikeStepsAreRefused) {
  const std::string port = std::to_string(20'000 + ::getpid() % 12'000);
  for (const auto& [variable, value, part] :
       {std::tuple{"SLURM_STEP_NUM_TASKS", "3", "counts 3 ranks, rank 0 2"},
        {"SLURM_STEP_ID", "77", "is of the run"}}) {
    const Task first = start(0, 2, "gpu 1 1 1 device", {{"MASTER_PORT", port}});
    const Task other = start(1, 2, "gpu 1 1 1 device", {{"MASTER_PORT", port}, {variable, value}});
    for (const Task* task : {&other, &first}) {
      const Ended ended = task->wait();
      EXPECT_EQ(ended.code, 1);
      EXPECT_THAT(ended.err, HasSubstr(part));
      EXPECT_EQ(lines(ended.err), 1) << ended.err;
    }
  }
}

TEST_F(CudaStep, AMalformedEnvironmentIsOneLine) {
  const std::vector<std::pair<Environment, std::string>> cases = {
      {{{"SLURM_PROCID", "x"}}, "SLURM_PROCID: \"x\", expected a whole number from 0 to 1"},
      {{{"SLURM_PROCID", "2"}}, "SLURM_PROCID: \"2\", expected a whole number from 0 to 1"},
      {{{"SLURM_STEP_NUM_TASKS", "-2"}}, "SLURM_STEP_NUM_TASKS: \"-2\", expected a whole number"},
      {{{"SLURM_LOCALID", ""}}, "SLURM_LOCALID: is not set"},
      {{{"SLURM_JOB_ID", ""}}, "SLURM_JOB_ID: is not set"},
      {{{"MASTER_PORT", "99999"}}, "MASTER_PORT: \"99999\", expected a whole number from 1 to"},
      {{{"SLURM_STEP_NODELIST", "node["}}, "SLURM_STEP_NODELIST: \"node[\", expected a list"},
      {{{"HYDRAULIS_TIMEOUT_SECONDS", "soon"}}, "HYDRAULIS_TIMEOUT_SECONDS: expected a positive"}};
  for (const auto& [changes, part] : cases) {
    const Ended ended = start(0, 2, "gpu 1 1 1 device", changes).wait();
    EXPECT_EQ(ended.code, 2) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(part));
    EXPECT_EQ(lines(ended.err), 1) << ended.err;
  }
}

TEST_F(CudaStep, OnTheCpuMpiIsNeeded) {
  const Ended ended = start(0, 2, "cpu 1 1 1 device").wait();
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("srun started 2 tasks without MPI"));
  EXPECT_THAT(ended.err, HasSubstr("srun --mpi=pmix"));
  EXPECT_EQ(lines(ended.err), 1) << ended.err;
}

TEST_F(CudaStep, ARankThatDiesEndsTheStep) {
  const Task first = start(0, 2, "gpu 100000 2 1 device");
  const Task second = start(1, 2, "gpu 100000 2 1 device");
  const auto steps = [&, out = folder_.path() / "task-0.out"] {
    return std::filesystem::exists(out) ? lines(read_text_file(out)) : 0;
  };
  for (int looks = 0; looks < 3000 && steps() < 2; ++looks) ::usleep(20'000);
  EXPECT_GE(steps(), 2);
  ::kill(second.process(), SIGKILL);
  EXPECT_EQ(second.wait().code, -SIGKILL);
  const Ended ended = first.wait();
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("rank 1 on "));
  EXPECT_THAT(ended.err, HasSubstr("has left the job"));
}

}  // namespace
}  // namespace hydraulis
