// nccl.h includes it and needs nothing of it.
#pragma once
