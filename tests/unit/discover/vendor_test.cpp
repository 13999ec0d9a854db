// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The tables of NVML and ROCm SMI on their fakes.
#include <gtest/gtest.h>
#include <stdlib.h>

#include "base/dynamic_library.hpp"
#include "discover/discover.hpp"

namespace tutti::discover {
namespace {

using topology::Link;
using topology::VendorFacts;

VendorFacts facts_in(const char* mode) {
  setenv("FAKE_NVML", mode, 1);
  auto facts = ask_nvml();
  EXPECT_TRUE(facts.ok()) << facts.status().message();
  const auto library = DynamicLibrary::open("libnvidia-ml.so.1");
  int (*references)() = nullptr;
  EXPECT_TRUE(library->resolve("tutti_fake_nvml_references", &references));
  EXPECT_EQ(0, references()) << "NVML is shut down again";
  return facts.ok() ? *facts : VendorFacts{};
}

std::string words(const VendorFacts& facts) {
  std::string text;
  for (const Link& link : facts.links) {
    text += std::to_string(link.a) + std::to_string(link.b) + "=" + topology::link_word(link) + " ";
  }
  return text;
}

TEST(nvml, gpus__by_address_and_name) {
  const VendorFacts facts = facts_in("pairs");
  EXPECT_TRUE(facts.is_known);
  ASSERT_EQ(4U, facts.gpus.size());
  EXPECT_EQ("0000:13:00.0", facts.gpus[3].pci);
  EXPECT_EQ("Fake 3", facts.gpus[3].name);
  EXPECT_EQ("GPU-3", facts.gpus[3].identity);
}

TEST(nvml, links__pairs_switches_and_none) {
  EXPECT_EQ("01=NV2 02=SYS 03=SYS 12=SYS 13=SYS 23=NV2 ", words(facts_in("pairs")));
  EXPECT_EQ(2U * 26562 * 8, facts_in("pairs").links[0].rate_mbit_s);
  EXPECT_EQ("01=NV4 02=NV4 03=NV4 12=NV4 13=NV4 23=NV4 ", words(facts_in("switch")));
  EXPECT_EQ(words(facts_in("switch")), words(facts_in("hidden")));
  EXPECT_EQ("01=PXB 02=SYS 03=SYS 12=SYS 13=SYS 23=PXB ", words(facts_in("apart")));
  EXPECT_EQ(words(facts_in("apart")), words(facts_in("none")));
}

TEST(nvml, no_driver__says_why) {
  setenv("FAKE_NVML", "nodriver", 1);
  const auto facts = ask_nvml();
  ASSERT_FALSE(facts.ok());
  EXPECT_EQ("NVLink: nvmlInit: Driver Not Loaded (9)", facts.status().message());
}

TEST(rocm_smi, gpus_and_links) {
  const auto facts = ask_rocm_smi();
  ASSERT_TRUE(facts.ok()) << facts.status().message();
  ASSERT_EQ(3U, facts->gpus.size());
  EXPECT_EQ("0001:22:02.3", facts->gpus[2].pci);
  EXPECT_EQ("Fake 2", facts->gpus[2].name);
  EXPECT_EQ("01=XGMI ", words(*facts));
  EXPECT_EQ(512'000U, facts->links[0].rate_mbit_s);
}

TEST(rocm_smi, failure__says_why) {
  setenv("FAKE_ROCM_SMI", "fail", 1);
  const auto facts = ask_rocm_smi();
  unsetenv("FAKE_ROCM_SMI");
  ASSERT_FALSE(facts.ok());
  EXPECT_EQ("XGMI: rsmi_init: status 8", facts.status().message());
}

}  // namespace
}  // namespace tutti::discover
