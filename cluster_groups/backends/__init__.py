"""What makes Ray clusters: local processes today, KubeRay with the Kubernetes issue."""
