#pragma once

#include <coin/Cbc_C_Interface.h>

#include <utility>
#include <vector>

namespace hydraulis::test {

/// A mixed-integer linear program to be minimised, solved exactly by CBC: what the planner's
/// heuristics and bounds are measured against.
class LinearProgram {
 public:
  static constexpr double kFree = 1e30;
  using Row = std::vector<std::pair<int, double>>;

  int add_variable(double cost, double lower = 0, double upper = kFree, bool whole = false) {
    costs_.push_back(cost);
    lower_.push_back(lower);
    upper_.push_back(upper);
    whole_.push_back(whole);
    return static_cast<int>(costs_.size()) - 1;
  }
  int add_binary(double cost = 0) { return add_variable(cost, 0, 1, true); }
  void add_row(Row row, double lower, double upper) {
    rows_.push_back(std::move(row));
    row_lower_.push_back(lower);
    row_upper_.push_back(upper);
  }

  struct Solution {
    bool optimal = false;  ///< proven
    double objective = 0;
  };
  Solution minimise() const {
    std::vector<std::vector<std::pair<int, double>>> columns(costs_.size());
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      for (const auto& [column, value] : rows_[r]) {
        columns[static_cast<std::size_t>(column)].emplace_back(static_cast<int>(r), value);
      }
    }
    std::vector<CoinBigIndex> starts{0};
    std::vector<int> indices;
    std::vector<double> values;
    for (const auto& column : columns) {
      for (const auto& [row, value] : column) {
        indices.push_back(row);
        values.push_back(value);
      }
      starts.push_back(static_cast<CoinBigIndex>(indices.size()));
    }
    Cbc_Model* model = Cbc_newModel();
    Cbc_loadProblem(model, static_cast<int>(costs_.size()), static_cast<int>(rows_.size()),
                    starts.data(), indices.data(), values.data(), lower_.data(), upper_.data(),
                    costs_.data(), row_lower_.data(), row_upper_.data());
    for (std::size_t column = 0; column < whole_.size(); ++column) {
      if (whole_[column]) Cbc_setInteger(model, static_cast<int>(column));
    }
    Cbc_setParameter(model, "log", "0");
    // CBC 2.10 stops on an assertion of its own in the preprocessing of some tiny programs.
    Cbc_setParameter(model, "preprocess", "off");
    Cbc_setLogLevel(model, 0);
    Cbc_solve(model);
    Solution solution{Cbc_isProvenOptimal(model) != 0, Cbc_getObjValue(model)};
    Cbc_deleteModel(model);
    return solution;
  }

 private:
  std::vector<double> costs_, lower_, upper_;
  std::vector<bool> whole_;
  std::vector<Row> rows_;
  std::vector<double> row_lower_, row_upper_;
};

}  // namespace hydraulis::test
