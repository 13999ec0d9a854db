// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "select/plan.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "unit/select/samples.hpp"

namespace tutti::select {
namespace {

std::string reason(const char* plan, const Shape& shape, const CommFacts& facts) {
  return refusal(*parse_plan(plan), shape, facts);
}

TEST(Plan, to_string__every_plan_parses_back) {
  for (const Plan& plan : all_plans()) {
    EXPECT_EQ(*parse_plan(to_string(plan)), plan) << to_string(plan);
  }
}

TEST(Plan, to_string__staged) {
  EXPECT_EQ(to_string(MpiPlan{Composition::kBeta, true}), "mpi-staged");
  EXPECT_EQ(to_string(MpiPlan{Composition::kGamma, true}), "mpi-gamma-staged");
  EXPECT_EQ(to_string(AlphaPlan{Backend::kMpi, true}), "mpi-alpha-staged");
  EXPECT_EQ(*parse_plan("mpi-alpha-staged"), Plan(AlphaPlan{Backend::kMpi, true}));
}

TEST(Plan, parse_plan__library_names_are_ccl) {
  for (const char* name : {"ccl-gamma", "nccl-gamma", "rccl-gamma", "NCCL-Gamma"}) {
    Result<Plan> plan = parse_plan(name);
    ASSERT_TRUE(plan.ok()) << name;
    EXPECT_EQ(to_string(*plan), "ccl-gamma");
  }
}

TEST(Plan, parse_plan__error_lists_the_names) {
  for (const char* name : {"", "-", "mpi-", "-gamma", "mpi-delta", "ccl-staged", "tornado",
                           "mpi-gamma-beta", "mpi gamma"}) {
    Result<Plan> plan = parse_plan(name);
    ASSERT_FALSE(plan.ok()) << name;
    EXPECT_NE(plan.status().message().find(
                  "mpi-beta, mpi-gamma, mpi-staged, mpi-alpha, ccl-alpha, ccl-beta"),
              std::string::npos);
  }
}

TEST(Plan, parse_plan__schedules) {
  for (const char* name : {"rings", "rings-xor", "schedule:ring", "schedule:recursive-doubling"}) {
    const Result<Plan> plan = parse_plan(name);
    ASSERT_TRUE(plan.ok()) << name;
    EXPECT_TRUE(is<SchedulePlan>(*plan));
    EXPECT_EQ(to_string(*plan), name);
  }
  EXPECT_EQ(to_string(*parse_plan("schedule:rings")), "rings");
  const Result<Plan> unknown = parse_plan("schedule:rnig");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.status().message().find("allreduce: ring recursive-doubling rabenseifner"),
            std::string::npos);
}

TEST(Plan, parse_plan__schedules_over_the_ccl) {
  for (const char* name : {"ccl:ring", "nccl:ring", "RCCL:ring"}) {
    const Plan plan = *parse_plan(name);
    EXPECT_EQ(plan, Plan(SchedulePlan{"ring", Backend::kCcl}));
    EXPECT_EQ(to_string(plan), "ccl:ring");
    EXPECT_NE(plan, *parse_plan("schedule:ring"));
  }
  EXPECT_EQ(to_string(*parse_plan("ccl:rings-xor")), "ccl:rings-xor");
  for (const char* name : {"ccl:", "ccl:rnig", "ccl:beta"}) {
    const Result<Plan> unknown = parse_plan(name);
    ASSERT_FALSE(unknown.ok()) << name;
    EXPECT_NE(unknown.status().message().find("is not an algorithm; there are"), std::string::npos);
  }
  EXPECT_FALSE(parse_plan("mpi:ring").ok());
}

TEST(Plan, parse_plan__schedules_over_our_transport) {
  const Plan plan = *parse_plan("net:ring");
  EXPECT_EQ(plan, Plan(SchedulePlan{"ring", Backend::kNet}));
  EXPECT_EQ(to_string(plan), "net:ring");
  EXPECT_EQ(to_string(*parse_plan("net:rings")), "net:rings");
  EXPECT_FALSE(parse_plan("net:rnig").ok());
  EXPECT_FALSE(parse_plan("net:beta").ok());
  EXPECT_EQ(parse_backend("net"), std::nullopt);  // No other kind of plan goes over it.
}

TEST(Plan, fit__schedules_take_the_messages_that_there_are) {
  CommFacts facts = facts_on(2);
  EXPECT_EQ(to_string(fit(*parse_plan("rings"), facts)), "rings");
  EXPECT_EQ(to_string(fit(*parse_plan("net:rings"), facts)), "net:rings");
  facts.has_mpi = false;
  EXPECT_EQ(to_string(fit(*parse_plan("rings"), facts)), "net:rings");
  EXPECT_EQ(to_string(fit(*parse_plan("schedule:ring"), facts)), "net:ring");
  EXPECT_EQ(to_string(fit(*parse_plan("ccl:ring"), facts)), "ccl:ring");
}

TEST(Plan, refusal__schedules_over_our_transport) {
  CommFacts facts = facts_on(2);
  Shape sum = device_allreduce(64);
  sum.memory = Memory::kHost;
  EXPECT_EQ(reason("net:ring", sum, facts),
            "schedules over our transport are for communicators without an MPI; use schedule:NAME");
  facts.has_mpi = false;
  EXPECT_EQ(reason("net:ring", sum, facts), "not set up");
  facts.net_refusal.clear();
  EXPECT_EQ(reason("net:ring", sum, facts), "");
  EXPECT_EQ(reason("net:ring", device_allreduce(64), facts), "buffers are in device memory");
  sum.op = ReduceOp::kMinloc;
  sum.type = DataType::kFloat64Int;
  EXPECT_EQ(reason("net:ring", sum, facts), "");
  sum.op = ReduceOp::kUser;
  EXPECT_NE(reason("net:ring", sum, facts), "");
  sum.op = ReduceOp::kAvg;
  EXPECT_EQ(reason("net:ring", sum, facts), "there is no average of float64_int");
  sum.type = DataType::kBfloat16;
  EXPECT_EQ(reason("net:ring", sum, facts), "");
  facts.has_mpi = true;
  EXPECT_EQ(reason("schedule:ring", sum, facts),
            "averages have no schedules but those of our transport");
  facts.has_mpi = false;
  for (const Collective collective : {Collective::kGatherv, Collective::kScatterv}) {
    EXPECT_TRUE(backend_has(*parse_plan("net:linear"), collective));
    EXPECT_FALSE(backend_has(*parse_plan("net:binomial"), collective));
    EXPECT_FALSE(backend_has(*parse_plan("schedule:linear"), collective));
  }
  EXPECT_FALSE(backend_has(*parse_plan("net:linear"), Collective::kScan));
}

TEST(Plan, refusal__schedules_over_the_ccl) {
  CommFacts facts = facts_on(1);
  const Shape sum = device_allreduce(64);
  Shape gather{Collective::kAllgather, 64, DataType::kByte, ReduceOp::kNone, Memory::kDevice};
  EXPECT_EQ(reason("ccl:ring", gather, facts), "");
  EXPECT_EQ(reason("ccl:ring", sum, facts),
            "nothing here reduces device memory; use schedule:NAME");
  facts.device_reduces = true;
  EXPECT_EQ(reason("ccl:ring", sum, facts), "");
  gather.memory = Memory::kHost;
  EXPECT_EQ(reason("ccl:ring", gather, facts), "buffers are in host memory");
  EXPECT_EQ(reason("schedule:ring", gather, facts), "");
  facts.ccl_usable = false;
  facts.ccl_refusal = "libnccl.so.2 not found";
  EXPECT_EQ(reason("ccl:ring", sum, facts), "libnccl.so.2 not found");
  const Shape barrier{Collective::kBarrier, {}, DataType::kByte, ReduceOp::kNone, Memory::kDevice};
  EXPECT_EQ(reason("ccl:dissemination", barrier, facts_on(1)),
            "schedules of barrier do not go through the CCL; use schedule:NAME");
  EXPECT_FALSE(backend_has(*parse_plan("ccl:pairwise"), Collective::kAlltoallv));
  EXPECT_TRUE(backend_has(*parse_plan("ccl:pairwise"), Collective::kAlltoall));
}

TEST(Plan, parse_plan__pipelines) {
  const Plan plan = *parse_plan("RCCL-Streams(12)");
  EXPECT_EQ(plan, Plan(PipelinePlan{Pipeline::kStreams, 12}));
  EXPECT_EQ(to_string(plan), "ccl-streams(12)");
  EXPECT_EQ(to_string(*parse_plan("ccl-comms(2)")), "ccl-comms(2)");
  EXPECT_NE(*parse_plan("ccl-comms(2)"), *parse_plan("ccl-comms(3)"));
  for (const char* name :
       {"ccl-comms", "ccl-comms()", "ccl-comms(1)", "ccl-comms(17)", "ccl-comms(2", "ccl-comms(2)x",
        "ccl-comms(2)-staged", "ccl-comms(02)", "ccl-comms-2", "ccl-comms(4294967298)"}) {
    const Result<Plan> bad = parse_plan(name);
    ASSERT_FALSE(bad.ok()) << name;
    EXPECT_NE(bad.status().message().find("write ccl-comms(2) to ccl-comms(16)"), std::string::npos)
        << bad.status().message();
  }
  EXPECT_FALSE(parse_plan("mpi-comms(2)").ok());
}

TEST(Plan, refusal__pipelines_cut_what_all_ranks_cut_alike) {
  std::string cut;
  const Plan plan = *parse_plan("ccl-streams(2)");
  for (int i = 0; i < kCollectiveCount; ++i) {
    Shape shape = device_allreduce(8);
    shape.collective = static_cast<Collective>(i);
    const std::string why = refusal(plan, shape, facts_on(2));
    EXPECT_EQ(backend_has(plan, shape.collective), why.empty()) << why;
    if (why.empty()) {
      cut += std::string(to_string(shape.collective)) + " ";
    } else {
      EXPECT_NE(why.find(to_string(shape.collective)), std::string::npos) << why;
    }
  }
  EXPECT_EQ(cut, "bcast gather scatter allgather alltoall reduce allreduce reduce_scatter_block ");
  Shape whole = device_allreduce(8);
  whole.collective = Collective::kAllgatherv;
  EXPECT_EQ(reason("ccl-comms(2)", whole, facts_on(1)),
            "allgatherv has a count for each rank and is not cut into chunks; use ccl");
}

TEST(Plan, refusal__pipelines_lack_what_a_rank_could_not_make) {
  CommFacts facts = facts_on(1);
  facts.comms_refusal = "rank 1 could not initialise it (see its log)";
  EXPECT_EQ(reason("ccl-comms(2)", device_allreduce(8), facts), facts.comms_refusal);
  EXPECT_EQ(reason("ccl-streams(2)", device_allreduce(8), facts), "");
  EXPECT_EQ(reason("ccl-gamma", device_allreduce(8), facts), "");
  facts.ccl_usable = false;
  facts.ccl_refusal = "libnccl.so.2 not found";
  EXPECT_EQ(reason("ccl-streams(2)", device_allreduce(8), facts), "libnccl.so.2 not found");
}

TEST(Plan, parse_plan__copies) {
  const Plan plan = *parse_plan("Direct-Copy");
  EXPECT_EQ(plan, Plan(DirectPlan{true}));
  EXPECT_EQ(to_string(plan), "direct-copy");
  EXPECT_NE(plan, *parse_plan("direct"));
  for (const char* name : {"direct-copy-staged", "direct-gamma-copy", "ccl-copy", "mpi-copy"}) {
    EXPECT_FALSE(parse_plan(name).ok()) << name;
  }
}

TEST(Plan, refusal__copies) {
  CommFacts facts = facts_on(1);
  facts.direct_device_refusal.clear();
  facts.direct_host_refusal.clear();
  const Plan plan = *parse_plan("direct-copy");
  std::string copied;
  Shape shape{Collective::kAllgather, 64, DataType::kByte, ReduceOp::kNone, Memory::kDevice};
  for (int i = 0; i < kCollectiveCount; ++i) {
    shape.collective = static_cast<Collective>(i);
    const std::string why = refusal(plan, shape, facts);
    EXPECT_EQ(backend_has(plan, shape.collective), why.empty()) << why;
    if (why.empty()) {
      copied += std::string(to_string(shape.collective)) + " ";
    } else {
      EXPECT_EQ(why, std::string("copy engines carry allgather and alltoall, not ") +
                         to_string(shape.collective) + "; use direct");
    }
  }
  EXPECT_EQ(copied, "allgather alltoall ");
  shape.collective = Collective::kAlltoall;
  facts.copies_refusal = "rank 1 could not make staging memory for copies (see its log)";
  EXPECT_EQ(refusal(plan, shape, facts), facts.copies_refusal);
  EXPECT_EQ(reason("direct", shape, facts), "");
  facts.direct_device_refusal = "no NVLink";
  EXPECT_EQ(refusal(plan, shape, facts), "no NVLink");
  shape.memory = Memory::kHost;
  EXPECT_NE(refusal(plan, shape, facts).find("host memory"), std::string::npos);
  shape.memory = Memory::kDevice;
  EXPECT_EQ(refusal(plan, shape, facts_on(2)),
            "direct is for one node; this communicator is on 2 nodes");
}

TEST(Plan, refusal__schedules_reduce_what_mpi_defines) {
  const Plan plan = *parse_plan("schedule:ring");
  CommFacts facts;
  facts.ranks = 4;
  const auto carried = [&](ReduceOp op, DataType type) {
    const Shape shape{Collective::kAllreduce, 64, type, op, Memory::kHost};
    return refusal(plan, shape, facts).empty();
  };
  EXPECT_TRUE(carried(ReduceOp::kSum, DataType::kComplex64));
  EXPECT_FALSE(carried(ReduceOp::kMax, DataType::kComplex64));
  EXPECT_TRUE(carried(ReduceOp::kMax, DataType::kFloat32));
  EXPECT_FALSE(carried(ReduceOp::kLand, DataType::kFloat32));
  EXPECT_FALSE(carried(ReduceOp::kBand, DataType::kFloat32));
  EXPECT_TRUE(carried(ReduceOp::kBand, DataType::kByte));
  EXPECT_FALSE(carried(ReduceOp::kSum, DataType::kByte));
  EXPECT_TRUE(carried(ReduceOp::kLand, DataType::kInt16));
  EXPECT_FALSE(carried(ReduceOp::kMaxloc, DataType::kInt32));
}

TEST(Plan, refusal__schedules_carry_what_they_have) {
  CommFacts facts;
  facts.ranks = 5;
  facts.nodes = 2;
  auto why = [&](const char* name, Shape shape) {
    return refusal(*parse_plan(name), shape, facts);
  };
  const Shape sum{Collective::kAllreduce, 64, DataType::kInt16, ReduceOp::kSum, Memory::kHost};
  EXPECT_EQ(why("schedule:ring", sum), "");
  EXPECT_EQ(why("rings", sum), "");
  EXPECT_EQ(why("rings-xor", sum), "no schedule 'rings-xor' for allreduce");
  Shape user = sum;
  user.op = ReduceOp::kUser;
  EXPECT_NE(why("schedule:ring", user), "");
  const Shape gather{Collective::kAllgather, 64, DataType::kByte, ReduceOp::kNone, Memory::kDevice};
  EXPECT_EQ(why("rings", gather), "");
  EXPECT_NE(why("schedule:neighbor-exchange", gather), "");
  facts.ranks = 6;
  EXPECT_EQ(why("schedule:neighbor-exchange", gather), "");
}

TEST(Plan, parse_plan__open_composition) {
  for (const char* name : {"mpi", "native", "ccl", "nccl", "rccl"}) {
    EXPECT_NE(fit(*parse_plan(name), facts_on(1)), fit(*parse_plan(name), facts_on(2))) << name;
  }
  for (const char* name : {"mpi-beta", "native-flat", "ccl-alpha", "mpi-staged"}) {
    EXPECT_EQ(fit(*parse_plan(name), facts_on(1)), fit(*parse_plan(name), facts_on(2))) << name;
  }
}

TEST(Plan, parse_backend__names) {
  EXPECT_EQ(parse_backend("native"), Backend::kMpi);
  EXPECT_EQ(parse_backend("rccl"), Backend::kCcl);
  EXPECT_EQ(parse_backend("direct"), std::nullopt);
}

TEST(Plan, fit__gamma_on_one_node_beta_on_several) {
  EXPECT_EQ(to_string(fit(*parse_plan("mpi"), facts_on(1))), "mpi-gamma");
  EXPECT_EQ(to_string(fit(*parse_plan("mpi"), facts_on(3))), "mpi-beta");
  EXPECT_EQ(to_string(fit(*parse_plan("mpi-beta"), facts_on(1))), "mpi-beta");
}

TEST(Plan, native_plan__is_never_refused) {
  for (int nodes : {1, 2}) {
    CommFacts facts = facts_on(nodes);
    facts.ccl_usable = false;
    Shape shape = device_allreduce(0);
    shape.op = ReduceOp::kUser;
    shape.type = DataType::kOther;
    EXPECT_EQ(refusal(native_plan(facts), shape, facts), "");
  }
}

TEST(Plan, refusal__gamma_says_how_many_nodes) {
  EXPECT_EQ(reason("mpi-gamma", device_allreduce(8), facts_on(1)), "");
  EXPECT_EQ(reason("mpi-gamma", device_allreduce(8), facts_on(3)),
            "gamma is for one node; this communicator is on 3 nodes");
  EXPECT_EQ(reason("ccl-gamma", device_allreduce(8), facts_on(2)),
            "gamma is for one node; this communicator is on 2 nodes");
}

TEST(Plan, refusal__beta_is_allowed_everywhere) {
  for (int nodes : {1, 2}) {
    EXPECT_EQ(reason("mpi-beta", device_allreduce(8), facts_on(nodes)), "");
    EXPECT_EQ(reason("ccl-beta", device_allreduce(8), facts_on(nodes)), "");
  }
}

TEST(Plan, refusal__alpha_needs_several_nodes) {
  EXPECT_EQ(reason("mpi-alpha", device_allreduce(8), facts_on(1)),
            "alpha needs several nodes; this communicator is on 1 node");
  EXPECT_EQ(reason("mpi-alpha", device_allreduce(8), facts_on(2)), "");
}

TEST(Plan, refusal__alpha_without_large_counts_reduces_so_much_at_once) {
  CommFacts facts = facts_on(2);
  Shape shape{Collective::kReduceScatterBlock, Bytes{INT32_MAX} * 8, DataType::kFloat64,
              ReduceOp::kSum, Memory::kHost};
  facts.mpi_has_large_counts = false;
  EXPECT_EQ(reason("mpi-alpha", shape, facts), "");
  shape.bytes = *shape.bytes + 8;
  EXPECT_EQ(reason("mpi-alpha", shape, facts),
            "alpha reduces over 2^31 elements at once here, which this MPI library cannot count");
  facts.mpi_has_large_counts = true;
  EXPECT_EQ(reason("mpi-alpha", shape, facts), "");
}

TEST(Plan, refusal__alpha_is_made_for_five_collectives) {
  std::string allowed;
  for (int i = 0; i < kCollectiveCount; ++i) {
    Shape shape = device_allreduce(8);
    shape.collective = static_cast<Collective>(i);
    if (!is_reduction(shape.collective)) {
      shape.op = ReduceOp::kNone;
      shape.type = DataType::kByte;
    }
    std::string why = reason("mpi-alpha", shape, facts_on(2));
    if (why.empty()) {
      allowed += std::string(to_string(shape.collective)) + " ";
    } else {
      EXPECT_NE(why.find(to_string(shape.collective)), std::string::npos) << why;
    }
  }
  EXPECT_EQ(allowed, "bcast allgather reduce allreduce reduce_scatter_block ");
}

TEST(Plan, refusal__alpha_keeps_off_user_operations_and_unknown_types) {
  Shape shape = device_allreduce(8);
  shape.op = ReduceOp::kUser;
  EXPECT_EQ(reason("mpi-alpha", shape, facts_on(2)),
            "alpha changes the order of a reduction; allreduce with a user-defined operation stays "
            "flat");
  EXPECT_EQ(reason("mpi-beta", shape, facts_on(2)), "");
  shape.op = ReduceOp::kMinloc;
  shape.type = DataType::kOther;
  EXPECT_NE(reason("mpi-alpha", shape, facts_on(2)), "");
  EXPECT_EQ(reason("mpi-beta", shape, facts_on(2)), "");
  shape.op = ReduceOp::kBand;  // An error, which MPI finds on all ranks alike.
  shape.type = DataType::kFloat64;
  EXPECT_EQ(reason("mpi-alpha", shape, facts_on(2)), "MPI does not define 'band' for float64");
  EXPECT_EQ(reason("mpi-beta", shape, facts_on(2)), "");
}

TEST(Plan, refusal__alpha_with_a_ccl_part_needs_the_ccl) {
  const Plan plan = AlphaPlan{.backend = Backend::kMpi, .node_backend = Backend::kCcl};
  CommFacts facts = facts_on(2);
  EXPECT_EQ(refusal(plan, device_allreduce(8), facts), "");
  facts.ccl_usable = false;
  facts.ccl_refusal = "two ranks share a GPU";
  EXPECT_EQ(refusal(plan, device_allreduce(8), facts), "two ranks share a GPU");
  const Plan both = AlphaPlan{Backend::kCcl, false, {}, Backend::kMpi, Backend::kMpi};
  EXPECT_EQ(refusal(both, device_allreduce(8), facts), "");
}

TEST(Plan, refusal__ccl_wants_device_memory_and_a_library) {
  Shape shape = device_allreduce(8);
  shape.memory = Memory::kHost;
  EXPECT_EQ(reason("ccl-gamma", shape, facts_on(1)), "buffers are in host memory");
  CommFacts facts = facts_on(1);
  facts.ccl_usable = false;
  facts.ccl_refusal = "libnccl.so.2 not found";
  EXPECT_EQ(reason("ccl-gamma", device_allreduce(8), facts), "libnccl.so.2 not found");
  facts.ccl_refusal.clear();
  EXPECT_NE(reason("ccl-gamma", device_allreduce(8), facts), "");
}

TEST(Plan, refusal__ccl_lacks_three_collectives) {
  std::string lacking;
  for (int i = 0; i < kCollectiveCount; ++i) {
    Shape shape = device_allreduce(8);
    shape.collective = static_cast<Collective>(i);
    std::string why = reason("ccl-gamma", shape, facts_on(1));
    if (!why.empty()) {
      EXPECT_EQ(why,
                std::string("nccl has no ") + to_string(shape.collective) + "; it stays native");
      lacking += std::string(to_string(shape.collective)) + " ";
    }
  }
  EXPECT_EQ(lacking, "barrier scan exscan ");
}

TEST(Plan, refusal__ccl_moves_bytes_of_unknown_number) {
  Shape shape;
  shape.collective = Collective::kAlltoallv;
  shape.memory = Memory::kDevice;
  EXPECT_EQ(reason("ccl-gamma", shape, facts_on(1)), "");
}

TEST(Plan, refusal__ccl_operations_and_types) {
  std::string carried;
  for (int op = 0; op < kReduceOpCount; ++op) {
    for (int type = 0; type < kDataTypeCount; ++type) {
      Shape shape = device_allreduce(8);
      shape.op = static_cast<ReduceOp>(op);
      shape.type = static_cast<DataType>(type);
      if (reason("ccl-gamma", shape, facts_on(1)).empty()) {
        carried += std::string(to_string(shape.op)) + ":" + to_string(shape.type) + " ";
      }
    }
  }
  const std::string real = "int8 uint8 int32 uint32 int64 uint64 float16 bfloat16 float32 float64";
  std::string expected;
  for (const char* op : {"sum", "prod", "min", "max"}) {
    std::istringstream types(real);
    for (std::string type; types >> type;) {
      expected += std::string(op) + ":" + type + " ";
    }
    if (std::string(op) == "sum") {
      expected += "sum:complex64 sum:complex128 ";
    }
  }
  for (const char* type :
       {"float16", "bfloat16", "float32", "float64", "complex64", "complex128"}) {
    expected += std::string("avg:") + type + " ";
  }
  EXPECT_EQ(carried, expected);
}

TEST(Plan, refusal__ccl_reasons_name_operation_and_type) {
  Shape shape = device_allreduce(8);
  shape.op = ReduceOp::kMinloc;
  EXPECT_EQ(reason("ccl-gamma", shape, facts_on(1)),
            "nccl has no operation 'minloc'; it has sum, prod, min, max and avg");
  shape.op = ReduceOp::kAvg;
  shape.type = DataType::kInt32;
  EXPECT_EQ(reason("ccl-gamma", shape, facts_on(1)), "there is no average of int32");
  shape.type = DataType::kFloat32;
  CommFacts facts = facts_on(1);
  facts.direct_device_refusal.clear();
  EXPECT_EQ(reason("direct-gamma", shape, facts), "");
  shape.memory = Memory::kHost;
  facts.direct_host_refusal.clear();
  EXPECT_EQ(reason("direct-gamma", shape, facts), "");
  shape.memory = Memory::kDevice;
  EXPECT_EQ(reason("mpi-alpha", shape, facts_on(2)), "alpha does not average");
  shape.op = ReduceOp::kUser;
  EXPECT_EQ(reason("ccl-gamma", shape, facts_on(1)), "nccl cannot call a user-defined operation");
  shape.op = ReduceOp::kProd;
  shape.type = DataType::kComplex64;
  EXPECT_EQ(reason("ccl-gamma", shape, facts_on(1)), "nccl can only sum complex64, not 'prod'");
  shape.op = ReduceOp::kSum;
  shape.type = DataType::kInt16;
  EXPECT_EQ(reason("ccl-gamma", shape, facts_on(1)), "nccl does not reduce int16");
}

TEST(Plan, refusal__staged_is_flat_on_host_memory) {
  Shape shape = device_allreduce(8);
  EXPECT_EQ(reason("mpi-staged", shape, facts_on(2)), "");
  shape.memory = Memory::kHost;
  EXPECT_EQ(reason("mpi-staged", shape, facts_on(2)), "");
}

}  // namespace
}  // namespace tutti::select
