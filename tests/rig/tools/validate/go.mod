module example.invalid/noderotation/rig/validate

go 1.22.0
