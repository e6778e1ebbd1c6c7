// The CUDA samples' timers and command lines.
#pragma once

struct StopWatchInterface;
bool sdkCreateTimer(StopWatchInterface **timer);
bool sdkDeleteTimer(StopWatchInterface **timer);
bool sdkStartTimer(StopWatchInterface **timer);
bool sdkStopTimer(StopWatchInterface **timer);
bool sdkResetTimer(StopWatchInterface **timer);
float sdkGetTimerValue(StopWatchInterface **timer);
bool checkCmdLineFlag(int count, const char **arguments, const char *name);
int getCmdLineArgumentInt(int count, const char **arguments, const char *name);
