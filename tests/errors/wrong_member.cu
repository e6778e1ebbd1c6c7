struct P { float x; };
__global__ void k(P* p) {
  p->y = 1;  // error: ParseError: no member named 'y' in 'P' // at: y
}
