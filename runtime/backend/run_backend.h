#pragma once

#include <cstdint>
#include <memory>

#include "runtime/run_config.h"
#include "runtime/tensor.h"

namespace hydraulis {

/// Throws InputError when the file asks for a backend that this build has not.
void check_backend(const RunConfig& config);

/// The backend of one process as a run's file chooses it.
class RunBackend {
 public:
  /// `host`: the process's CPU side, which must outlive this; its memory limit is the run's where
  /// the CPU trains. All ranks make theirs together. Throws InputError on all ranks alike where
  /// there is not a GPU for each, CommunicationError where a rank does not come.
  RunBackend(CpuProcess& host, const RunConfig& config, std::int64_t memory_limit_bytes);
  ~RunBackend();
  const Backend& backend() const { return backend_; }

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
  Backend backend_;
};

}  // namespace hydraulis
