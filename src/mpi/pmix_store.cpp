// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// PMIx through the functions that the process's MPI library has loaded; the few types are declared
// here, as the standard (version 4) fixes them. Open MPI starts the client itself (a start of ours
// before it would take its settings away), and hands what was put to the launcher by PMIx_Commit,
// which dispatch.cpp stands in front of for that.
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "base/config.hpp"
#include "mpi/presence_store.hpp"

namespace tutti::mpi {
namespace {

constexpr const char* kKey = "tutti.presence";
constexpr const char* kHostKey = "pmix.hname";
constexpr const char* kImmediateKey = "pmix.immediate";
constexpr const char* kTimeoutKey = "pmix.timeout";

constexpr int kSuccess = 0;
constexpr std::uint8_t kGlobalScope = 3;
enum ValueType : std::uint16_t { kBool = 1, kString = 3, kInt = 6 };

struct Proc {
  char name_space[256];
  std::uint32_t rank;
};

struct Value {
  std::uint16_t type;
  union {
    bool flag;
    char* string;
    int integer;
    void* largest[3];
  } data;
};

struct Info {
  char key[512];
  std::uint32_t flags;
  Value value;
};
static_assert(sizeof(Proc) == 260 && sizeof(Value) == 32 && sizeof(Info) == 552);

using Put = int(std::uint8_t scope, const char* key, Value* value);
using Get = int(const Proc*, const char* key, const Info*, std::size_t infos, Value**);
using Answer = void(int status, Value*, void* data);
using GetLater = int(const Proc*, const char* key, const Info*, std::size_t infos, Answer*,
                     void* data);

Info info(const char* key) {
  Info made{};
  std::strncpy(made.key, key, sizeof(made.key) - 1);
  return made;
}

class PmixStore final : public PresenceStore {
 public:
  PmixStore(const std::string& name_space, Put* put_function, Get* get_function,
            GetLater* get_later_function)
      : name_space_(name_space),
        put_(put_function),
        get_(get_function),
        get_later_(get_later_function) {}

  void put(const std::string& value) override {
    std::string copy = value;
    Value string{};
    string.type = kString;
    string.data.string = copy.data();
    put_(kGlobalScope, kKey, &string);
  }

  std::vector<std::optional<std::string>> get(const std::vector<int>& ranks) override {
    std::vector<std::optional<std::string>> values;
    std::vector<std::size_t> missing;
    for (const int rank : ranks) {
      values.push_back(get_now(rank, kKey));
      if (!values.back()) {
        missing.push_back(values.size() - 1);
      }
    }
    get_missing(ranks, missing, &values);
    return values;
  }

  std::string host(int rank) override { return get_now(rank, kHostKey).value_or(""); }
  bool puts_at_commit() const override { return true; }

 private:
  /// Answers to questions that the launcher may pass on to another node.
  struct Pending {
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t open = 0;
    std::vector<std::optional<std::string>> values;
  };
  struct Question {
    std::shared_ptr<Pending> pending;
    std::size_t index;
  };

  Proc proc(int rank) const {
    Proc made{};
    std::strncpy(made.name_space, name_space_.c_str(), sizeof(made.name_space) - 1);
    made.rank = static_cast<std::uint32_t>(rank);
    return made;
  }

  static std::optional<std::string> text_of(int status, const Value* value) {
    return status == kSuccess && value != nullptr && value->type == kString &&
                   value->data.string != nullptr
               ? std::optional<std::string>(value->data.string)
               : std::nullopt;
  }

  /// What this process or its node's launcher knows already.
  std::optional<std::string> get_now(int rank, const char* key) const {
    Info immediate = info(kImmediateKey);
    immediate.value.type = kBool;
    immediate.value.data.flag = true;
    const Proc peer = proc(rank);
    Value* value = nullptr;
    const int status = get_(&peer, key, &immediate, 1, &value);
    std::optional<std::string> text = text_of(status, value);
    if (value != nullptr) {
      if (value->type == kString) {
        std::free(value->data.string);
      }
      std::free(value);
    }
    return text;
  }

  static void take_answer(int status, Value* value, void* data) {
    const std::unique_ptr<Question> question(static_cast<Question*>(data));
    Pending& pending = *question->pending;
    const std::lock_guard lock(pending.mutex);
    pending.values[question->index] = text_of(status, value);
    --pending.open;
    pending.changed.notify_all();
  }

  /// Where Open MPI does not spread all data at its start (pmix_base_async_modex), a launcher must
  /// ask another node's. A rank with us has put its value by now, so the answer is there at once;
  /// for one without us the launcher waits for the time given. All are asked together.
  void get_missing(const std::vector<int>& ranks, const std::vector<std::size_t>& missing,
                   std::vector<std::optional<std::string>>* values) const {
    constexpr int kWaitS = 2;
    if (missing.empty()) {
      return;
    }
    auto pending = std::make_shared<Pending>();
    pending->values.resize(values->size());
    // Both live as long as a question may be open, which may be longer than this call.
    auto* const timeout = new Info(info(kTimeoutKey));
    timeout->value.type = kInt;
    timeout->value.data.integer = kWaitS;
    for (const std::size_t index : missing) {
      {
        const std::lock_guard lock(pending->mutex);
        ++pending->open;
      }
      auto* const question = new Question{pending, index};
      const Proc peer = proc(ranks[index]);
      if (get_later_(&peer, kKey, timeout, 1, take_answer, question) != kSuccess) {
        delete question;
        const std::lock_guard lock(pending->mutex);
        --pending->open;
      }
    }
    std::unique_lock lock(pending->mutex);
    const bool all = pending->changed.wait_for(lock, std::chrono::seconds(5 * kWaitS),
                                               [&] { return pending->open == 0; });
    for (const std::size_t index : missing) {
      (*values)[index] = pending->values[index];
    }
    if (all) {
      delete timeout;
    }
  }

  std::string name_space_;
  Put* put_;
  Get* get_;
  GetLater* get_later_;
};

}  // namespace

std::unique_ptr<PresenceStore> open_pmix_store(Lookup lookup) {
  const std::string name_space = environment_value("PMIX_NAMESPACE");
  auto* const put = reinterpret_cast<Put*>(lookup("PMIx_Put"));
  auto* const get = reinterpret_cast<Get*>(lookup("PMIx_Get"));
  auto* const get_later = reinterpret_cast<GetLater*>(lookup("PMIx_Get_nb"));
  if (name_space.empty() || put == nullptr || get == nullptr || get_later == nullptr) {
    return nullptr;
  }
  return std::make_unique<PmixStore>(name_space, put, get, get_later);
}

}  // namespace tutti::mpi
