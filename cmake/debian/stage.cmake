# Run by CPack after the components are installed and before they are packed: adds copyright and changelog, and
# compresses man pages. With --no-name gzip stores no time, so that the same input makes the same package. CMake makes
# folders with the mode that the umask leaves: here they get that of every package.
function(compress)
  execute_process(COMMAND gzip --best --no-name ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} upper)
  set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${component})
  file(GLOB_RECURSE pages ${root}/usr/share/man/*)
  if(pages)
    compress(${pages})
  endif()
  set(doc ${root}/usr/share/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  file(MAKE_DIRECTORY ${doc})
  file(COPY_FILE ${CPACK_DLOCK_COPYRIGHT} ${doc}/copyright)
  file(COPY_FILE ${CPACK_DLOCK_CHANGELOG} ${doc}/changelog.Debian)
  compress(${doc}/changelog.Debian)
  file(CHMOD_RECURSE ${root}/usr/share/doc FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  execute_process(COMMAND find ${root} -type d -exec chmod 755 {} + COMMAND_ERROR_IS_FATAL ANY)
endforeach()
