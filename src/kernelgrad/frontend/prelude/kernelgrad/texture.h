// Textures and surfaces: declared so that a use is understood, and refused.
#pragma once

typedef unsigned long long cudaTextureObject_t;
typedef unsigned long long cudaSurfaceObject_t;
enum cudaTextureReadMode { cudaReadModeElementType, cudaReadModeNormalizedFloat };
enum cudaTextureFilterMode { cudaFilterModePoint, cudaFilterModeLinear };
enum cudaTextureAddressMode { cudaAddressModeWrap, cudaAddressModeClamp, cudaAddressModeMirror, cudaAddressModeBorder };
enum { cudaTextureType1D = 1, cudaTextureType2D = 2, cudaTextureType3D = 3 };

template <class T, int dim = 1, cudaTextureReadMode mode = cudaReadModeElementType> struct texture {
  int normalized;
  cudaTextureFilterMode filterMode;
  cudaTextureAddressMode addressMode[3];
};

template <class T> T tex1Dfetch(cudaTextureObject_t texture, int x);
template <class T> T tex1D(cudaTextureObject_t texture, float x);
template <class T> T tex2D(cudaTextureObject_t texture, float x, float y);
template <class T> T tex3D(cudaTextureObject_t texture, float x, float y, float z);
template <class T> T tex1DLayered(cudaTextureObject_t texture, float x, int layer);
template <class T> T tex2DLayered(cudaTextureObject_t texture, float x, float y, int layer);
template <class T, int d, cudaTextureReadMode m> T tex1Dfetch(texture<T, d, m> texture, int x);
template <class T, int d, cudaTextureReadMode m> T tex1D(texture<T, d, m> texture, float x);
template <class T, int d, cudaTextureReadMode m> T tex2D(texture<T, d, m> texture, float x, float y);
template <class T, int d, cudaTextureReadMode m> T tex3D(texture<T, d, m> texture, float x, float y, float z);
template <class T> void tex1Dfetch(T *value, cudaTextureObject_t texture, int x);
template <class T> void tex1D(T *value, cudaTextureObject_t texture, float x);
template <class T> void tex2D(T *value, cudaTextureObject_t texture, float x, float y);
template <class T> void tex3D(T *value, cudaTextureObject_t texture, float x, float y, float z);
template <class T> T surf2Dread(cudaSurfaceObject_t surface, int x, int y);
template <class T> void surf2Dread(T *value, cudaSurfaceObject_t surface, int x, int y);
template <class T> void surf2Dwrite(T value, cudaSurfaceObject_t surface, int x, int y);
template <class T> void surf3Dwrite(T value, cudaSurfaceObject_t surface, int x, int y, int z);
