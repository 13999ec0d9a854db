// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// MPICH's selection JSON, a decision tree, as our list of rules.
// Grammar: MPICH src/mpi/coll/src/csel.c and csel_container.c. Keys are conditions, tried in the
// order of the file; the first that holds is entered and never left again, and a node of which no
// key holds makes no choice. A key "algorithm=NAME" or "composition=NAME" is a leaf.
//
// A condition becomes predicates of every rule below it. Where MPICH would make no choice it goes
// on to its own built-in one, so each node that does not cover all calls ends in a rule "mpi":
// without it those calls would fall through to rules that MPICH never reaches. A condition that
// our predicates cannot express is reported and its branch left out; its calls then follow the
// branches after it.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>

#include "base/json_document.hpp"
#include "base/message.hpp"
#include "select/refusals.hpp"
#include "select/table.hpp"

namespace tutti::select {
namespace {

/// What a key does to the calls that reach it.
enum class Branch { kAlways, kSome, kNever, kLeftOut };

std::string without_spaces(const std::string& key) {
  std::string result;
  for (char c : key) {
    if (std::isspace(static_cast<unsigned char>(c)) == 0) {
      result += c;
    }
  }
  return result;
}

/// The collective of exactly this name; MPICH knows no other spellings.
std::optional<Collective> collective_named(std::string_view name) {
  auto found = std::find(kCollectiveNames.begin(), kCollectiveNames.end(), name);
  if (found == kCollectiveNames.end()) {
    return std::nullopt;
  }
  return static_cast<Collective>(found - kCollectiveNames.begin());
}

/// Where MPICH's avg_msg_size is our `bytes`. (Of alltoall it is one block.)
bool average_is_bytes(Collective collective) {
  return collective == Collective::kAllreduce || collective == Collective::kBcast ||
         collective == Collective::kReduce;
}

/// Where MPICH's total_msg_size is our `bytes`. (Elsewhere it is multiplied by the number of
/// ranks once more, or, of gather and scatter, counts elements of a local argument.)
bool total_is_bytes(Collective collective) {
  return collective == Collective::kAlltoall || collective == Collective::kAllgather ||
         collective == Collective::kAllgatherv || collective == Collective::kReduceScatter ||
         collective == Collective::kReduceScatterBlock;
}

/// Narrows `range`; false when nothing is left.
bool intersect(const Range& with, std::optional<Range>* range) {
  Range old = range->value_or(Range{});
  *range = Range{std::max(old.min, with.min), std::min(old.max, with.max)};
  return (*range)->min <= (*range)->max;
}

Branch narrowed(bool something_left) { return something_left ? Branch::kSome : Branch::kNever; }

std::vector<ReduceOp> predefined_ops() {
  std::vector<ReduceOp> ops;
  for (int i = 0; i < kReduceOpCount; ++i) {
    auto op = static_cast<ReduceOp>(i);
    if (is_predefined(op)) {
      ops.push_back(op);
    }
  }
  return ops;
}

Branch restrict_ops(const std::vector<ReduceOp>& to, Rule* conditions) {
  if (conditions->ops.empty()) {
    conditions->ops = to;
    return Branch::kSome;
  }
  std::vector<ReduceOp> both;
  std::set_intersection(conditions->ops.begin(), conditions->ops.end(), to.begin(), to.end(),
                        std::back_inserter(both));
  conditions->ops = both;
  return narrowed(!both.empty());
}

class Importer {
 public:
  explicit Importer(const std::string& file) : file_(file) {}

  Result<ImportedTable> run(const JsonValue& root) {
    TUTTI_RETURN_IF_ERROR(node(root, Rule{}));
    ImportedTable result;
    result.json = tuning_file_json(table_, "Imported from MPICH's selection file " + file_);
    result.not_carried = std::move(not_carried_);
    return result;
  }

 private:
  std::string at(int line) const { return file_ + ":" + std::to_string(line) + ": "; }

  Status fail(int line, const std::string& what) const {
    return {ErrorCode::kInvalidConfig, at(line) + what};
  }

  void not_carried(int line, std::string_view key, const std::string& why) {
    not_carried_.push_back(at(line) + in_quotes(key) + ": " + why);
  }

  Branch left_out(int line, std::string_view key, const std::string& why) {
    not_carried(line, key, why + "; the branch is left out, its calls follow the ones after it");
    return Branch::kLeftOut;
  }

  void emit(const Rule& conditions, std::string_view plan, const std::string& comment) {
    Rule rule = conditions;
    rule.plan = *parse_plan(plan);
    rule.comment = comment;
    table_.rules.push_back(std::move(rule));
  }

  /// A node of the tree; `conditions` holds the predicates of all keys above it.
  Status node(const JsonValue& value, const Rule& conditions) {
    if (value.kind != JsonValue::Kind::kObject) {
      return fail(value.line, std::string("an object is expected, not ") + kind_name(value.kind));
    }
    for (const JsonMember& member : value.members) {
      std::string key = without_spaces(member.key);
      if (key.starts_with("algorithm=") || key.starts_with("composition=")) {
        return leaf(member, key, conditions);
      }
      Rule inner = conditions;
      TUTTI_ASSIGN_OR_RETURN(Branch branch, apply(key, member.line, &inner));
      if (branch == Branch::kAlways || branch == Branch::kSome) {
        TUTTI_RETURN_IF_ERROR(node(member.value, inner));
      }
      if (branch == Branch::kAlways) {
        return {};  // MPICH reaches nothing behind it either.
      }
    }
    if (!conditions.collectives.empty() || conditions.nodes || conditions.ranks ||
        conditions.ranks_per_node) {
      emit(conditions, "mpi",
           "line " + std::to_string(value.line) + ": MPICH makes no choice here");
    }
    return {};
  }

  /// Adds what `key` asks for to `conditions`.
  Result<Branch> apply(const std::string& key, int line, Rule* conditions) {
    if (key == "any" || key.ends_with("=any")) {
      return Branch::kAlways;
    }
    if (key.starts_with("collective=")) {
      return apply_collective(key, line, conditions);
    }
    if (key == "comm_type=intra") {
      return Branch::kAlways;
    }
    if (key == "comm_type=inter") {
      return left_out(line, key, "intercommunicators always stay native");
    }
    if (key.starts_with("comm_")) {
      return apply_communicator(key, line, conditions);
    }
    if (key.starts_with("avg_msg_size<") || key.starts_with("total_msg_size<")) {
      return apply_size(key, line, conditions);
    }
    if (key.starts_with("is_commutative=") || key.starts_with("is_op_built_in=")) {
      return apply_op(key, line, conditions);
    }
    static const std::vector<std::string> kKnown = {"count<pow2",
                                                    "is_node_consecutive=yes",
                                                    "is_node_consecutive=no",
                                                    "is_sendbuf_inplace=yes",
                                                    "is_sendbuf_inplace=no",
                                                    "is_block_regular=yes",
                                                    "is_block_regular=no",
                                                    "is_multi_threaded=yes",
                                                    "is_multi_threaded=no"};
    if (key.starts_with("count<=") ||
        std::find(kKnown.begin(), kKnown.end(), key) != kKnown.end()) {
      return left_out(line, key, "a rule cannot ask for this");
    }
    return fail(line, "MPICH has no key " + in_quotes(key));
  }

  Result<Branch> apply_collective(const std::string& key, int line, Rule* conditions) {
    std::string_view name = std::string_view(key).substr(key.find('=') + 1);
    std::optional<Collective> collective = collective_named(name);
    if (collective) {
      if (!conditions->collectives.empty()) {
        return narrowed(conditions->collectives.front() == *collective);
      }
      conditions->collectives = {*collective};
      return Branch::kSome;
    }
    bool non_blocking = name.starts_with('i');
    std::string_view base = name.substr(non_blocking ? 1 : 0);
    constexpr std::string_view kNeighbor = "neighbor_";
    base.remove_prefix(base.starts_with(kNeighbor) ? kNeighbor.size() : 0);
    if (collective_named(base)) {
      not_carried(line, key, "non-blocking and neighbourhood collectives always stay native");
      return Branch::kLeftOut;
    }
    return fail(line, "MPICH has no collective " + in_quotes(name));
  }

  Result<Branch> apply_communicator(const std::string& key, int line, Rule* conditions) {
    if (key == "comm_size=pow2") {
      return left_out(line, key, "a rule cannot ask for powers of two");
    }
    if (key == "comm_size=node_comm_size") {
      return narrowed(intersect({1, 1}, &conditions->nodes));
    }
    // "parent": some node has several ranks. The three other words all mean that none has.
    if (key == "comm_hierarchy=parent") {
      return narrowed(intersect({2, UINT64_MAX}, &conditions->ranks_per_node));
    }
    if (key == "comm_hierarchy=node" || key == "comm_hierarchy=node_roots" ||
        key == "comm_hierarchy=flat") {
      return narrowed(intersect({1, 1}, &conditions->ranks_per_node));
    }
    if (key.starts_with("comm_size<")) {
      return apply_limit(key, line, &conditions->ranks);
    }
    // MPICH means the average and we the largest: with unequal nodes the rule is the narrower one.
    if (key.starts_with("comm_avg_ppn<")) {
      return apply_limit(key, line, &conditions->ranks_per_node);
    }
    return fail(line, "MPICH has no key " + in_quotes(key));
  }

  Result<Branch> apply_size(const std::string& key, int line, Rule* conditions) {
    if (conditions->collectives.empty()) {
      return left_out(line, key, "a size above collective= means nothing");
    }
    Collective collective = conditions->collectives.front();
    bool average = key.starts_with("avg_");
    if (average ? !average_is_bytes(collective) : !total_is_bytes(collective)) {
      return left_out(line, key,
                      std::string("of ") + to_string(collective) +
                          " MPICH counts other bytes than a rule does");
    }
    return apply_limit(key, line, &conditions->bytes);
  }

  Result<Branch> apply_op(const std::string& key, int line, Rule* conditions) {
    if (conditions->collectives.empty() || !is_reduction(conditions->collectives.front())) {
      return left_out(line, key, "asks for an operation outside a reduction");
    }
    // All predefined operations commute. Of user-defined ones a rule cannot tell, so "yes" is
    // carried without them.
    if (key == "is_commutative=yes" || key == "is_op_built_in=yes") {
      return restrict_ops(predefined_ops(), conditions);
    }
    if (key == "is_op_built_in=no") {
      return restrict_ops({ReduceOp::kUser}, conditions);
    }
    if (key == "is_commutative=no") {
      return left_out(line, key, "a rule cannot tell which user-defined operations commute");
    }
    return fail(line, "MPICH has no key " + in_quotes(key));
  }

  /// "name<=N" or "name<N".
  Result<Branch> apply_limit(const std::string& key, int line, std::optional<Range>* range) {
    std::size_t less = key.find('<');
    bool inclusive = less + 1 < key.size() && key[less + 1] == '=';
    const char* begin = key.data() + less + (inclusive ? 2 : 1);
    const char* end = key.data() + key.size();
    std::uint64_t limit = 0;
    auto [rest, error] = std::from_chars(begin, end, limit);
    if (error != std::errc() || rest != end) {
      return fail(line, in_quotes(key) + ": a whole number is expected behind '" +
                            (inclusive ? "<=" : "<") + "'");
    }
    if (!inclusive && limit == 0) {
      return Branch::kNever;
    }
    return narrowed(intersect({0, inclusive ? limit : limit - 1}, range));
  }

  /// "algorithm=NAME" or "composition=NAME". Parameters below it are the algorithm's own affair.
  Status leaf(const JsonMember& member, const std::string& key, const Rule& conditions) {
    if (member.value.kind != JsonValue::Kind::kObject) {
      return fail(member.line, in_quotes(key) + ": an object of parameters is expected, not " +
                                   kind_name(member.value.kind));
    }
    std::string name = key.substr(key.find('=') + 1);
    if (conditions.collectives.empty()) {
      not_carried(member.line, key, "stands outside every collective=");
      return {};
    }
    std::string comment = "line " + std::to_string(member.line) + ": " + name;
    if (key.starts_with("composition=")) {
      composition(member.line, key, conditions, comment);
    } else if (name.ends_with("_intra_ccl")) {
      // MPICH takes it for device buffers only.
      Rule device = conditions;
      device.memory = Memory::kDevice;
      emit(device, "ccl", comment);
      emit(conditions, "mpi", comment + ", what it cannot carry");
    } else {
      not_carried(member.line, key,
                  "the algorithm inside the MPI library is its own choice; the rule says mpi");
      emit(conditions, "mpi", comment);
    }
    return {};
  }

  void composition(int line, const std::string& key, const Rule& conditions,
                   const std::string& comment) {
    Collective collective = conditions.collectives.front();
    if (key.ends_with("_composition_alpha")) {
      alpha(line, key, conditions, comment);
    } else if (key.ends_with("_composition_beta")) {
      if (collective == Collective::kBcast || collective == Collective::kReduce) {
        not_carried(line, key,
                    "of bcast and reduce MPICH's beta goes by nodes; the rule says flat, mpi-beta");
      }
      emit(conditions, "mpi-beta", comment);
    } else if (key.ends_with("_composition_gamma")) {
      // Gamma of bcast and reduce is the flat collective on any number of nodes, and allreduce
      // falls back to that on several: "mpi" is gamma on one node and flat on several.
      emit(conditions, conditions.nodes == Range{1, 1} ? "mpi-gamma" : "mpi", comment);
    } else {
      not_carried(line, key, "there is no such composition here; the rule says mpi");
      emit(conditions, "mpi", comment);
    }
  }

  void alpha(int line, const std::string& key, const Rule& conditions, const std::string& comment) {
    switch (conditions.collectives.front()) {
      case Collective::kBcast:
      case Collective::kAllgather:
      case Collective::kReduce:
      case Collective::kAllreduce:
        break;
      case Collective::kBarrier:
      case Collective::kAlltoall:
      case Collective::kScan:
        not_carried(line, key, "alpha is not made for this collective; the rule says mpi");
        emit(conditions, "mpi", comment);
        return;
      default:
        // Of the others MPICH has one composition, the flat one, and calls it alpha.
        emit(conditions, "mpi", comment);
        return;
    }
    Rule several = conditions;
    if (intersect({2, UINT64_MAX}, &several.nodes)) {
      emit(several, "mpi-alpha", comment);
    }
    Rule one = conditions;
    if (intersect({1, 1}, &one.nodes)) {
      emit(one, "mpi", comment + ", on one node");
    }
  }

  const std::string& file_;
  Table table_;
  std::vector<std::string> not_carried_;
};

}  // namespace

Result<ImportedTable> import_mpich(const std::string& text, const std::string& file) {
  TUTTI_ASSIGN_OR_RETURN(JsonValue root, parse_json(text, file));
  return Importer(file).run(root);
}

}  // namespace tutti::select
