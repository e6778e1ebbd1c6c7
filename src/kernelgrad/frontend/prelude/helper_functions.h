// The CUDA samples' timers and command lines.
#pragma once

struct StopWatchInterface {
  long _start, _total;
};
inline bool sdkCreateTimer(StopWatchInterface **timer) {
  *timer = new StopWatchInterface{0, 0};
  return true;
}
inline bool sdkDeleteTimer(StopWatchInterface **timer) {
  delete *timer;
  *timer = nullptr;
  return true;
}
inline bool sdkStartTimer(StopWatchInterface **timer) {
  (*timer)->_start = __kg_nanoseconds();
  return true;
}
inline bool sdkStopTimer(StopWatchInterface **timer) {
  (*timer)->_total += __kg_nanoseconds() - (*timer)->_start;
  return true;
}
inline bool sdkResetTimer(StopWatchInterface **timer) {
  (*timer)->_total = 0;
  return true;
}
inline float sdkGetTimerValue(StopWatchInterface **timer) { return (*timer)->_total * 1e-6f; }
inline float sdkGetAverageTimerValue(StopWatchInterface **timer) { return (*timer)->_total * 1e-6f; }
bool checkCmdLineFlag(int count, const char **arguments, const char *name);
int getCmdLineArgumentInt(int count, const char **arguments, const char *name);
