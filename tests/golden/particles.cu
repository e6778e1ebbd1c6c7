// gradient of: p, dt
// launch: 1, 4; p[16], dt = 0.25
struct Particle { float x, v, mass; int fixed; };
__device__ void move(Particle &p, float force, float dt) {
    p.v += force / p.mass * dt;
    p.x += p.v * dt;
}
__global__ void particles(Particle *p, float dt) {
    int i = threadIdx.x;
    if (!p[i].fixed) move(p[i], -p[i].x, dt);
}
