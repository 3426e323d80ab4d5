package main

import "syscall"

// endWithUs has the kernel kill the command when this process ends, however that ends.
func endWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
