// Loads and stores with cache hints (the hints are dropped), address space questions, compiler hints.
#pragma once

#define KG_LOAD(name)                                                                                                  \
  template <class T> inline T name(const T *address) { return *address; }
KG_LOAD(__ldg)
KG_LOAD(__ldca)
KG_LOAD(__ldcg)
KG_LOAD(__ldcs)
KG_LOAD(__ldlu)
KG_LOAD(__ldcv)
#undef KG_LOAD

#define KG_STORE(name)                                                                                                 \
  template <class T> inline void name(T *address, std::type_identity_t<T> value) { *address = value; }
KG_STORE(__stwb)
KG_STORE(__stcg)
KG_STORE(__stcs)
KG_STORE(__stwt)
#undef KG_STORE

// Declared so that a use is understood and refused: these depend on where a pointer points at run time.
unsigned int __isGlobal(const void *address);
unsigned int __isShared(const void *address);
unsigned int __isConstant(const void *address);
unsigned int __isLocal(const void *address);
size_t __cvta_generic_to_shared(const void *address);
size_t __cvta_generic_to_global(const void *address);
size_t __cvta_generic_to_constant(const void *address);
size_t __cvta_generic_to_local(const void *address);
void *__cvta_shared_to_generic(size_t address);
void *__cvta_global_to_generic(size_t address);
