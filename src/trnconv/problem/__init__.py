"""What is asked: the convolution, its end, the policy, and the launches it takes."""
