// libcu++: cuda::std is std here.
#pragma once

namespace cuda {
namespace std = ::std;
}
